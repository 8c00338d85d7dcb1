"""`lowwater-extractor --config fleet.yaml --source rac`: one source's extractor."""

from __future__ import annotations

import argparse
import sys

from lowwater import config, logs
from lowwater.errors import LowwaterError
from lowwater_extractor.runtime import Extractor


def main() -> None:
    parser = argparse.ArgumentParser(prog="lowwater-extractor", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--source", required=True, help="the source to read, by its name in the config")
    parser.add_argument("--http-port", type=int, help="instead of http.port of the config; 0: any free one")
    arguments = parser.parse_args()
    try:
        settings = config.load(arguments.config)
        logs.configure(settings)
        code = Extractor(settings, arguments.source, arguments.http_port).run()
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-extractor: {error}\n")
        code = 1
    sys.exit(code)


if __name__ == "__main__":
    main()
