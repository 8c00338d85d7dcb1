"""The command `lowwater demo`."""
