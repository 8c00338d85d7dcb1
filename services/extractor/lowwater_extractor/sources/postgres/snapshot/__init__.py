"""Copies of tables under an exported snapshot."""
