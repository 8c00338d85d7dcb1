"""Stores of a lake's files: local directories and object stores."""
