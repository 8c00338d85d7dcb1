"""MySQL and MariaDB by their binary log."""
