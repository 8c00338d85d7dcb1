"""The mode `incremental`: tables that are read by cursors instead of a log."""
