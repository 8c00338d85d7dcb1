"""lowwater devkit: a simulated Oracle RAC database, database servers, the demo, and checks of its result."""
