"""`lowwater-merger --config fleet.yaml --group bank`: one group's merger."""

from __future__ import annotations

from lowwater.service import run_service
from lowwater_merger.service import MergerService


def main() -> None:
    run_service("lowwater-merger", __doc__ or "", "group", MergerService)


if __name__ == "__main__":
    main()
