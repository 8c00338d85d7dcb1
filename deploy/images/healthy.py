"""Exit code 0 while the service in this container is alive: the image's health check."""

import os
import sys
import urllib.request

port = os.environ.get("LOWWATER_HEALTH_PORT", "8080")
with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/live", timeout=4) as answer:
    sys.exit(0 if answer.status == 200 else 1)
