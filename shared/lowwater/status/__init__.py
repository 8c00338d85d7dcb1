"""Health, metrics, traces, and the status topic."""
