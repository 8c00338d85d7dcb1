"""lowwater: change data capture that keeps transactions whole."""

__version__ = "0.1.0"
