"""Compiled: the cut of packets into events."""
