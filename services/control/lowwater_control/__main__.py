"""`lowwater-control --config fleet.yaml`: the HTTP API and the web page."""

from __future__ import annotations

import argparse
import sys

import uvicorn

from lowwater.errors import ConfigError, LowwaterError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.records.schemas import open_store
from lowwater.runtime import config, logs
from lowwater.runtime.config import Settings
from lowwater.status import tracing
from lowwater_control.app import create_app
from lowwater_control.auth import LOOPBACK

#: open connections (event streams) are closed after this time at shutdown
STOP_SECONDS = 3


def _serve(settings: Settings) -> None:
    control = settings.control
    if control.host not in LOOPBACK and not control.tokens:
        raise ConfigError(
            f"control.host is {control.host}, but no tokens are configured: anyone who can connect has full access",
            hint="bind it to 127.0.0.1, or set control.tokens: [{name: me, role: operate, token: '${env:TOKEN}'}]",
        )
    admin = Admin(settings.kafka)
    admin.wait_for_broker(60)
    admin.ensure(topics.shared_topics())
    app = create_app(settings, open_store(settings))
    uvicorn.run(
        app, host=control.host, port=control.port, log_level="warning", server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="lowwater-control", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--port", type=int, help="overrides control.port of the config, for another replica")
    arguments = parser.parse_args()
    try:
        settings = config.load(arguments.config)
        if arguments.port is not None:
            control = settings.control.model_copy(update={"port": arguments.port})
            settings = settings.model_copy(update={"control": control})
        logs.configure(settings)
        tracing.configure("control")
        _serve(settings)
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-control: {error}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
