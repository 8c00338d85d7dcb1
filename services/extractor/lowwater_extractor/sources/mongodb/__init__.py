"""The source kind `mongodb`: one change stream over a replica set, and copies by ranges of `_id`."""
