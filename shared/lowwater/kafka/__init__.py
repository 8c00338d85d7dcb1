"""Kafka: clients, transactional producers, assigned consumers, topics, and checks of the broker."""
