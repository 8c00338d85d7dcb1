"""The replication protocol, and the text of values."""
