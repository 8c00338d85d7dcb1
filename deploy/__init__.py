"""What is made by code for those who install it: `make generate` writes the dashboards and docs/metrics.md."""
