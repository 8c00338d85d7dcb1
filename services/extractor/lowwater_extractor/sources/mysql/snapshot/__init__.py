"""Copies of tables by ranges of their primary key."""
