"""The source kind `turso`: a Turso database file that other processes write, by its table of changes."""
