"""lowwater fleet: the command line `lowwater`, the local runner and the embedded Kafka."""
