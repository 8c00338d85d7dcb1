"""What the log does not tell, found in the catalogue."""
