"""Transactions that move primary keys: several versions of rows share a key while they run."""
