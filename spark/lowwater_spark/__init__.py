"""lowwater on Spark: landing of ordered transactions in Parquet, and what keeps the lake in order."""
