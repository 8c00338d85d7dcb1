"""lowwater on Spark: landing of ordered transactions in Parquet, copies of tables, and maintenance of the lake."""
