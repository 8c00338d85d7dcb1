"""Spark sees what Arrow sees: state and changes, over copies, moved keys and columns that were left out."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.histories import NAME, History, Step
from tests.unit.lake.moving_histories import MovingHistory
from tests.unit.lake.test_reader import schema

from lowwater.codec.table import BYTES, DATE, FLOAT64, STRING, TIMESTAMPTZ, Type
from lowwater.errors import ConfigError
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory
from lowwater_fleet.kafka.jars import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS: list[Step] = [
    ("copy", 0, 0, 0),
    ("update", 0, 7, 0),
    ("commit", 0, 0, 0),
    ("insert", 3, 1, 1),
    ("copied", 0, 0, 0),
    ("version", 0, 0, 0),
    ("update", 1, 11, 1),
    ("commit", 0, 0, 0),
    ("move", 1, 12, 3),
    ("update", 2, 4, 3),
    ("land", 2, 1, 0),
    ("move", 2, 3, 1),
    ("commit", 0, 0, 0),
    ("delete", 0, 0, 0),
    ("update", 1, 9, 1),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    try:
        find_java()
    except ConfigError as error:
        pytest.skip(str(error))
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder
    session: SparkSession = (
        builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    yield session
    session.stop()


def rows(found: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(row) for row in found)


def test_spark_sees_what_arrow_sees(session: SparkSession, tmp_path: Path) -> None:
    store = LocalDirectory(tmp_path)
    existing = {(n, "x"): {"a": n, "b": "x", "n": n} for n in range(3)}
    history = History(LakeMaker(store), existing, versions=(0, 1))
    history.run(STEPS)
    lake = Lake(store)
    for gsn in (3, lake.gsn):
        state = lake.state(NAME, gsn, allow_stale=True)
        by_spark = [row.asDict() for row in state.spark(session).collect()]
        assert rows(by_spark) == rows(state.rows())
        assert len(by_spark) == len(history.states[gsn])
    names = ["_op", "_gsn", "_seq", "a", "n", "note", "_before"]
    changes = lake.changes(NAME, 1, columns=names)
    by_spark = [row.asDict(recursive=True) for row in changes.spark(session).orderBy("_gsn", "_seq").collect()]
    assert by_spark == changes.arrow().to_pylist()
    assert lake.state(NAME).spark(session).columns == lake.state(NAME).schema.names


MOVING: list[Step] = [
    ("copy", 0, 0, 0),
    ("copied", 0, 0, 0),
    # a shift in the order in which every key is taken before it is free, and one row over another
    ("shift", 1, 5, 4),
    ("commit", 0, 0, 0),
    ("insert", 2, 3, 9),
    ("commit", 0, 0, 0),
    ("insert", 4, 8, 0),
    ("delete", 4, 0, 0),
    ("swap", 0, 7, 3),
    ("shift", 0, 6, 7),
    ("land", 0, 0, 0),
]


@pytest.mark.parametrize("is_whole", [True, False])
def test_spark_sees_what_arrow_sees_of_keys_that_move(session: SparkSession, tmp_path: Path, is_whole: bool) -> None:
    existing = {(n, "x"): {"a": n, "b": "x", "n": n} for n in range(4)}
    history = MovingHistory(str(tmp_path), existing, versions=(0, 1), is_whole=is_whole, lacks=True)
    history.run(MOVING)
    lake = Lake(history.store)
    for gsn in (2, lake.gsn):
        state = lake.state(NAME, gsn, allow_stale=True)
        by_spark = [row.asDict() for row in state.spark(session).collect()]
        assert rows(by_spark) == rows(state.rows())
        assert len(by_spark) == len(history.states[gsn])


KEYS: dict[str, tuple[Type, list[Any]]] = {
    "bytes": (BYTES, [b"a", b"b", b"c"]),
    "timestamp": (TIMESTAMPTZ, [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
    "float": (FLOAT64, [math.nan, -0.0, 1.5]),
    "date": (DATE, [date(2026, 1, day) for day in (1, 2, 3)]),
}


@pytest.mark.parametrize("kind", KEYS)
def test_spark_sees_what_arrow_sees_of_moving_keys_of_other_types(
    session: SparkSession, tmp_path: Path, kind: str
) -> None:
    """Large values are left out of the log, so what was there before has to be asked for, by key."""
    type_, (one, two, three) = KEYS[kind]
    maker = LakeMaker(LocalDirectory(tmp_path))
    table = maker.version(schema("s.n.t", {"id": type_, "v": STRING, "big": STRING}))
    maker.land([MadeTransaction([Made(table, "c", {"id": key, "v": "v", "big": f"big {key}"}) for key in (one, two)])])
    moves = [(one, two), (two, three), (two, one)]
    maker.land([MadeTransaction([Made(table, "u", {"id": new, "v": "v"}, {"id": old}, ["big"]) for old, new in moves])])
    state = Lake(maker.store).state("t")
    by_spark = [row.asDict() for row in state.spark(session).collect()]
    assert sorted(row["big"] for row in by_spark) == sorted(row["big"] for row in state.rows())
    assert len(by_spark) == 2
