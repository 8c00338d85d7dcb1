"""`lowwater-control --config fleet.yaml`: the HTTP API."""

from __future__ import annotations

import argparse
import sys

import uvicorn

from lowwater import config, logs, topics
from lowwater.bus.admin import Admin
from lowwater.config import Settings
from lowwater.errors import ConfigError, LowwaterError
from lowwater.schemas import open_store
from lowwater_control.app import create_app

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def _serve(settings: Settings) -> None:
    if settings.control.host not in _LOOPBACK:
        raise ConfigError(
            f"control.host is {settings.control.host}, but this version of the API has no tokens",
            hint="bind it to 127.0.0.1 and put a proxy that asks for a token in front of it",
        )
    admin = Admin(settings.kafka)
    admin.wait_for_broker(60)
    admin.ensure(topics.shared_topics())
    app = create_app(lambda: open_store(settings))
    uvicorn.run(app, host=settings.control.host, port=settings.control.port, log_level="warning")


def main() -> None:
    parser = argparse.ArgumentParser(prog="lowwater-control", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    arguments = parser.parse_args()
    try:
        settings = config.load(arguments.config)
        logs.configure(settings)
        _serve(settings)
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-control: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
