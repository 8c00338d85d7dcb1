"""The schema of a database file, and what becomes of it."""
