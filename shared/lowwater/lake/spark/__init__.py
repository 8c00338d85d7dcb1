"""The same reads by Spark."""
