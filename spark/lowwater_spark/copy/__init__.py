"""Writes chunks of tables to files of the lake."""
