"""`lowwater-merger --config fleet.yaml --group bank`: one group's merger."""

from __future__ import annotations

import argparse
import sys

from lowwater import config, logs
from lowwater.errors import LowwaterError
from lowwater_merger.service import MergerService


def main() -> None:
    parser = argparse.ArgumentParser(prog="lowwater-merger", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--group", required=True, help="the group to merge, by its name in the config")
    parser.add_argument("--http-port", type=int, help="instead of http.port of the config; 0: any free one")
    arguments = parser.parse_args()
    try:
        settings = config.load(arguments.config)
        logs.configure(settings)
        code = MergerService(settings, arguments.group, arguments.http_port).run()
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-merger: {error}\n")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
