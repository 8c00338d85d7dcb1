"""Reads of state and changes with Spark."""
