"""Files that docker-compose.yml mounts into its services."""
