"""Statements of the log, and what they do to captured tables."""
