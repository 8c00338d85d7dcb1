"""Access to the data behind the routes: Kafka topics and the extractor process."""
