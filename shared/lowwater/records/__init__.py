"""Records of the Kafka topics: types, encoding, schema ids, positions."""
