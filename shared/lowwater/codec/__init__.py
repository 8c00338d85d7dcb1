"""Avro, compiled per table version, in Confluent wire format."""
