"""One session of an extractor: its loop, its clock, the lead limit of threads, the reset of a position."""
