"""Capture by LogMiner: sessions over all threads, the view's rows, and the parser of their SQL."""
