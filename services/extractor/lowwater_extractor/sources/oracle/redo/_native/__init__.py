"""Compiled: every byte of redo passes through these loops."""
