"""Deployment files; `make generate` generates the dashboards, docs/metrics.md and the chart's README."""
