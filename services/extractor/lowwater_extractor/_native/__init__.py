"""Compiled code: modules with C types in a .pxd file of the same name, and a librdkafka plugin."""
