"""The reader on an object store: nothing has a local path there."""

from __future__ import annotations

import pytest
from tests.support.lake_maker import LakeMaker
from tests.support.s3 import S3Server
from tests.unit.lake.histories import NAME, History, Step
from tests.unit.lake.test_state_property import as_dictionaries, expected

from lowwater.lake import Lake
from lowwater.lake.store.base import open_lake_store

STEPS: list[Step] = [
    ("insert", 0, 1, 1),
    ("insert", 1, 2, 1),
    ("land", 1, 3, 0),
    ("update", 0, 5, 1),
    ("move", 1, 12, 3),
    ("commit", 0, 0, 0),
    ("version", 0, 0, 0),
    ("update", 0, 6, 1),
    ("delete", 1, 0, 0),
]


@pytest.mark.parametrize("versions", [(0, 1), (0, 3)], ids=["plain", "with decimals that DuckDB does not know"])
def test_state_and_changes_come_from_an_object_store(s3: S3Server, versions: tuple[int, ...]) -> None:
    config = s3.lake_config()
    history = History(LakeMaker(open_lake_store(config)), versions=versions)
    history.run(STEPS)
    lake = Lake.open(config)
    for gsn, rows in enumerate(history.states):
        assert as_dictionaries(lake.state(NAME, gsn, allow_stale=True).rows()) == expected(rows)
    assert lake.changes(NAME).arrow().num_rows == len(history.changes)
    assert lake.at("1970-01-01T00:00:00.001Z").gsn == 1
