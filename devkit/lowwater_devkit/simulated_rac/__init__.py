"""A simulated Oracle RAC database: the cluster that writes log files, and the source kind that reads them."""
