"""The dictionary: the tables of objects and their columns, by SCN."""
