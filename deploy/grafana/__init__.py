"""Grafana's dashboards, made by code."""
