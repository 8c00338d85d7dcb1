"""Copies of collections by ranges of `_id`."""
