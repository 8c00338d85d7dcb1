"""Which object is which table, and what its columns are, from which SCN on."""
