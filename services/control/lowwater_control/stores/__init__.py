"""What the routes read and write: topics, lakes, the extractor's own process."""
