"""Transactions that change primary keys so that several rows temporarily have the same key."""
