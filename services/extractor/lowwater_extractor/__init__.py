"""The extractor: reads one source's log, publishes changes, commits and marks."""
