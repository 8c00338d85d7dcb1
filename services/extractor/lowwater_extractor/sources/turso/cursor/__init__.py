"""The mode `incremental`."""
