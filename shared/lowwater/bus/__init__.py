"""Kafka, wrapped once: clients, transactions, state topics, topic settings."""
