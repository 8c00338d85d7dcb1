"""Copies of tables: what is to be copied, what has landed, and tables that are stale."""
