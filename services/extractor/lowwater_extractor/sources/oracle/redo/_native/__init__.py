"""Loops over every byte of redo, compiled with Cython."""
