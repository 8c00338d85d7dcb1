"""Micro-batches of the ordered topic become files of the lake."""
