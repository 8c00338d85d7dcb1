"""Records of the Kafka topics: their types, their bytes, schema ids, positions."""
