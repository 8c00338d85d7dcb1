"""Copies of tables as of an SCN."""
