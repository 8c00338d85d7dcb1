"""Committed transactions into Kafka transactions."""
