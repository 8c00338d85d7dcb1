"""What every service runs on: configuration, secrets, logs, fail points, start and stop."""
