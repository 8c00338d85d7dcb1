"""An embedded Kafka broker, for trying things out."""
