"""`lowwater-extractor --config fleet.yaml --source rac`: the extractor of one source. --check only checks it."""

from __future__ import annotations

import sys

from lowwater.runtime.service import run_service
from lowwater_extractor.check import check
from lowwater_extractor.rpc_server import ask
from lowwater_extractor.session.loop import Extractor
from lowwater_extractor.session.reset import reset


def main() -> None:
    for flag, command in (("--check", check), ("--reset", reset), ("--ask", ask)):
        if flag in sys.argv:
            sys.exit(command([argument for argument in sys.argv[1:] if argument != flag]))
    run_service("lowwater-extractor", __doc__ or "", "source", Extractor)


if __name__ == "__main__":
    main()
