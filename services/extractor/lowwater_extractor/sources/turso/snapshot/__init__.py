"""Copies of tables."""
