"""Chunks of tables become files of the lake."""
