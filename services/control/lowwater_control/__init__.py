"""The control service: schema lookup for any Avro consumer."""
