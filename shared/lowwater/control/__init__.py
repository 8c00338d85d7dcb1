"""The control topic: the desired state of the fleet, as set by operators."""
