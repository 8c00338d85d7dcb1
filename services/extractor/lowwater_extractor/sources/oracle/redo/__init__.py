"""The redo log format, read: from blocks to events."""
