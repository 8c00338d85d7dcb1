"""Compiled: modules with C types in a .pxd beside them, and a plugin of the Kafka client."""
