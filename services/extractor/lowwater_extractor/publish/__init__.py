"""Publishes committed transactions in Kafka transactions."""
