"""The merger without Kafka. Pure: no I/O, no clock."""
