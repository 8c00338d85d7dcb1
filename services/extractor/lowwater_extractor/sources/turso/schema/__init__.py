"""The schema of a database file and its changes."""
