"""Transactions put together over all redo threads."""
