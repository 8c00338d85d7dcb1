"""The control service: the HTTP API, the web page, and schema lookup for Avro consumers."""
