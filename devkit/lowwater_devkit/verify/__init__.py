"""Compares the ordered topic and the lake with the histories of the sources."""
