"""Compaction, retention and sweep."""
