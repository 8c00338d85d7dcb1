"""`lowwater-merger --config fleet.yaml --group bank`: the merger of a group. For --rebuild-progress see rebuild.py."""

from __future__ import annotations

import sys

from lowwater.runtime.service import run_service
from lowwater_merger.rebuild import rebuild
from lowwater_merger.service import MergerService

REBUILD = "--rebuild-progress"


def main() -> None:
    if REBUILD in sys.argv:
        sys.exit(rebuild([argument for argument in sys.argv[1:] if argument != REBUILD]))
    run_service("lowwater-merger", __doc__ or "", "group", MergerService)


if __name__ == "__main__":
    main()
