"""The control topic: what operators want of the fleet."""
