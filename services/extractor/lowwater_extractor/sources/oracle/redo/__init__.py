"""Reads the redo log format: from blocks to events."""
