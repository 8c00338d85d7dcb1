"""Copies of tables: which tables to copy, which chunks have landed, which tables are stale."""
