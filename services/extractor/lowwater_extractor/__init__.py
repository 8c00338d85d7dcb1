"""The extractor: reads one source's log and publishes its changes, commits and marks to Kafka."""
