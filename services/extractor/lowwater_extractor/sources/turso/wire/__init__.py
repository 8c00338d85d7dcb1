"""SQLite's record format."""
