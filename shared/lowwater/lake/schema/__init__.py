"""Columns of a table over all of its versions."""
