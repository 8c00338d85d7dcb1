"""Decodes rows in redo records: pairs, values, LOBs."""
