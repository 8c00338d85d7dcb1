"""The replication protocol, pgoutput messages and the text format of values."""
