"""`lowwater-extractor --config fleet.yaml --source rac`: one source's extractor."""

from __future__ import annotations

from lowwater.service import run_service
from lowwater_extractor.runtime import Extractor


def main() -> None:
    run_service("lowwater-extractor", __doc__ or "", "source", Extractor)


if __name__ == "__main__":
    main()
