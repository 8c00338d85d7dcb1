"""The ledger of a lake: manifests, checkpoints, and the files that are live."""
