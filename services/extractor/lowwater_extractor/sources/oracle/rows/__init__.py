"""Rows out of redo records: pairs, values, LOBs."""
