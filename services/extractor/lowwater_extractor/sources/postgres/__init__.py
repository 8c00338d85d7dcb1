"""The source kind `postgres`: PostgreSQL 14 to 18, by logical replication (pgoutput)."""
