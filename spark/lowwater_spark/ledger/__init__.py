"""Two phases: attempts write files, one manifest makes them count."""
