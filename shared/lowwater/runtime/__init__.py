"""Configuration, secrets, logs, fail points, and the start and stop of services."""
