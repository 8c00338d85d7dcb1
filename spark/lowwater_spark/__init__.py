"""lowwater on Spark: where landing will live. Nothing of it is here yet."""
