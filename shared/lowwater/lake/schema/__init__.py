"""The columns of a table across its versions."""
