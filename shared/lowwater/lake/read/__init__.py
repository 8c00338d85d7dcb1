"""Reads: the state of a table at a gsn, and its changes between two."""
