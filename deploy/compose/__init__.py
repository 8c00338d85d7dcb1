"""What docker-compose.yml mounts into its services."""
