"""Runs the services of a fleet as processes on one machine."""
