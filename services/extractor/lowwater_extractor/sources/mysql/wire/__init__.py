"""The replication protocol, events of the binary log, and their values."""
