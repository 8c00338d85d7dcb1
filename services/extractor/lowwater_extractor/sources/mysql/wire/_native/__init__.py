"""Compiled code that splits packets into events."""
