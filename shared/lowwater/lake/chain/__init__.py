"""The ledger of a lake: manifests, checkpoints, and live files."""
