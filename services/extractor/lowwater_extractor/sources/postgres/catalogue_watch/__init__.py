"""Detects changes that are not in the log, by querying the catalogue."""
