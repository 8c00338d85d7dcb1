"""Assembles transactions over all redo threads."""
