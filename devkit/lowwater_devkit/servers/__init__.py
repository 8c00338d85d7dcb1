"""Real database servers for tests, benchmarks and the demo."""
