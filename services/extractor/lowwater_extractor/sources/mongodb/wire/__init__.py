"""The change stream, the oplog, BSON."""
