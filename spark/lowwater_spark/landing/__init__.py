"""Writes micro-batches of the ordered topic to files of the lake."""
