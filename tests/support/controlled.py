"""A fleet with its API, and a small lake that is there without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater.lake.store.base import open_lake_store
from lowwater.runtime.config import LakeConfig
from tests.support.api import Api
from tests.support.harness import Fleet, Workload
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction

#: a fuzz, or a page that is asked in a hurry, is no attack here
CONTROL = {"requests_per_second": 100_000}
LANDINGS = 5


def make_lake(directory: Path) -> None:
    maker = LakeMaker(open_lake_store(LakeConfig(uri=str(directory))))
    columns = (Column("id", INT64, nullable=False), Column("name", STRING))
    table = maker.version(TableSchema("made", "shop", "people", 1, columns, ("id",)))
    for landing in range(LANDINGS):
        rows = [{"id": landing * 10 + n, "name": f"person {landing * 10 + n}"} for n in range(10)]
        maker.land([MadeTransaction([Made(table, "c", row)]) for row in rows])


@contextmanager
def controlled(
    directory: Path, bootstrap_servers: str, name: str, **options: Any
) -> Iterator[tuple[Fleet, Api, Workload]]:
    """Two threads that have committed something, released; the API in front."""
    lake = directory / "lake"
    make_lake(lake)
    fleet = Fleet(directory, bootstrap_servers, name, lake={"uri": str(lake)}, **{"control": CONTROL, **options})
    work = Workload(fleet.cluster(), transactions=200)
    try:
        fleet.extractor()
        fleet.merger()
        api = Api(fleet.control())
        fleet.wait_for_capture()
        work.run(60)
        fleet.wait_for_all()
        api.wait()
        api.wait_for_source(fleet.sources[0], "running")
        yield fleet, api, work
        api.close()
    finally:
        fleet.kill_all()
