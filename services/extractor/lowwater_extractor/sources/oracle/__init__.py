"""Oracle, one or several redo threads: from the redo logs themselves, or by LogMiner."""
