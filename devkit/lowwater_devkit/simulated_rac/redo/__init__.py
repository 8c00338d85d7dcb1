"""Writes redo in the format of Oracle's logs: values, rows, change vectors, records, files."""
