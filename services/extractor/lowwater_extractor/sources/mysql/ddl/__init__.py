"""Statements in the log and their effects on captured tables."""
