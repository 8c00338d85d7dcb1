"""`lowwater demo`."""
