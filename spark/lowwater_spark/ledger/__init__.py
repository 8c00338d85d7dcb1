"""Two-phase commit to the lake: attempts write files, one manifest makes them visible."""
