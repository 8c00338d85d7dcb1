"""Runs the services of a fleet as Deployments."""
