"""An embedded Kafka broker for the demo, tests and experiments."""
