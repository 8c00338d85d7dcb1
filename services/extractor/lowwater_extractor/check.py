"""`lowwater-extractor --check`: checks the prerequisites for capture on the live database, and prints them as JSON."""

from __future__ import annotations

import argparse
import json
import sys

from lowwater.errors import LowwaterError
from lowwater.runtime import config
from lowwater.runtime.service import EXIT_ERROR, EXIT_STOPPED
from lowwater_extractor.api import Check
from lowwater_extractor.sources import open_source


def check(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lowwater-extractor --check", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--source", required=True, help="the source, by its name in the config")
    given = parser.parse_args(arguments)
    try:
        settings = config.load(given.config).source(given.source)
        found = open_source(given.source, settings.kind, settings.config).check()
    except LowwaterError as error:
        found = [Check("config", False, error.what, error.hint or "")]
    sys.stdout.write(json.dumps([one._asdict() for one in found]) + "\n")
    return EXIT_STOPPED if all(one.is_good for one in found) else EXIT_ERROR
