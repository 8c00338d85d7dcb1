"""One session of an extractor: main loop, source clock, lead limit of threads, reset of the position."""
