"""Whatever the micro-batches cut, a transaction lands whole, in its place, or not yet."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.landing.conftest import Group, NewGroup

from lowwater.codec.table import INT32, INT64, STRING, Column, TableSchema
from lowwater.errors import LandingError, TopicError
from lowwater.lake import Lake
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Manifest
from lowwater.lake.store.local import LocalDirectory
from lowwater.records.positions import Order
from lowwater.records.types import Commit
from lowwater_spark.landing import land_task
from lowwater_spark.landing import task_reports as stitch

ACCOUNTS = TableSchema("bank", "B", "ACCOUNTS", 1, (Column("ID", INT64), Column("CENTS", INT64)), ("ID",))
ENTRIES = TableSchema("bank", "B", "ENTRIES", 1, (Column("ID", INT64), Column("CENTS", INT64)), ("ID",))


def _insert(table: TableSchema, first: int, count: int) -> list[Any]:
    return [(table, "c", None, (n, 1)) for n in range(first, first + count)]


def _log(group: Group) -> list[Manifest]:
    return list(Chain.open(LocalDirectory(Path(group.lake))).log())


def _gsns(group: Group, table: str = "bank.B.ACCOUNTS") -> list[tuple[int, int]]:
    rows = Lake.open(group.lake).changes(table).arrow()
    return list(zip(rows["_gsn"].to_pylist(), rows["_seq"].to_pylist(), strict=True))


def test_a_micro_batch_that_ends_inside_a_transaction(new_group: NewGroup) -> None:
    group = new_group(records_max=10)
    with group.topic as topic:
        for n in range(20):
            topic.transaction(*_insert(ACCOUNTS, 10 * n, 4), *_insert(ENTRIES, 10 * n, 3))
    group.land()
    log = _log(group)
    assert [m.gsn for m in log][-1] == 20
    assert len(log) > 5, "the micro-batches were small"
    assert all(a.landed.offset == b.from_offset and a.gsn == b.from_gsn for a, b in itertools.pairwise(log))
    assert _gsns(group) == [(g, s) for g in range(1, 21) for s in range(1, 5)]
    assert _gsns(group, "bank.B.ENTRIES") == [(g, s) for g in range(1, 21) for s in range(5, 8)]


def test_a_transaction_larger_than_a_micro_batch_and_than_a_task_holds(
    new_group: NewGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(land_task, "CARRY_ROWS_MAX", 1_000)
    monkeypatch.setattr(stitch, "CARRY_ROWS_MAX", 1_000)
    group = new_group(records_max=60_000)
    size = land_task.CARRY_ROWS_MAX * 200
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 3))
        topic.transaction(*_insert(ACCOUNTS, 10, size))
        topic.transaction(*_insert(ENTRIES, 0, 3))
    group.land()
    log = _log(group)
    assert [m.gsn for m in log] == [1, 3], "the first one did not wait, the large one came at once"
    assert sum(f.rows for f in log[1].files) == size + 3
    assert _gsns(group) == [(1, s) for s in range(1, 4)] + [(2, s) for s in range(1, size + 1)]


def test_what_has_no_commit_yet_is_not_landed(new_group: NewGroup) -> None:
    """The ordered topic never shows this; a reader that trusted it would still be wrong to land it."""
    group = new_group()
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 3))
        value = topic._values(_insert(ACCOUNTS, 5, 1))[0]
        topic.raw(2, 1, value)
    group.land()
    assert _gsns(group) == [(1, 1), (1, 2), (1, 3)]
    with group.topic as topic:
        topic.raw(2, 2, topic._values([(ACCOUNTS, "c", None, (6, 1))] * 2)[1])
    group.land()
    assert [m.gsn for m in _log(group)] == [1]


def test_no_more_files_than_tables_that_changed(new_group: NewGroup) -> None:
    group = new_group()
    tables = [TableSchema("bank", "B", f"T{n}", 1, (Column("ID", INT64),), ("ID",)) for n in range(40)]
    with group.topic as topic:
        for table in tables:
            topic.transaction((table, "c", None, (1,)))
    group.land()
    with group.topic as topic:
        for n in range(50):
            topic.transaction(*[(table, "c", None, (10 + n,)) for table in tables[:5]])
    group.land()
    log = _log(group)
    assert len(log[0].files) == 40
    assert len(log[1].files) == 5
    assert len(log[1].versions) == 0, "a version is written down once"


def test_a_new_table_version_in_the_middle_of_a_batch(new_group: NewGroup) -> None:
    group = new_group()
    wider = TableSchema("bank", "B", "ACCOUNTS", 2, (*ACCOUNTS.columns, Column("NOTE", STRING)), ("ID",))
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 2))
        topic.transaction((wider, "u", (0, 1, None), (0, 5, "hello")))
        topic.transaction((ACCOUNTS, "c", None, (9, 9)))
    group.land()
    (manifest,) = _log(group)
    assert len(manifest.files) == 2
    assert {v.version for v in manifest.versions.values()} == {1, 2}
    rows = Lake.open(group.lake).state("ACCOUNTS").rows()
    assert sorted((r["ID"], r["CENTS"], r["NOTE"]) for r in rows) == [(0, 5, "hello"), (1, 1, None), (9, 9, None)]


def test_a_widened_and_a_narrowed_column(new_group: NewGroup) -> None:
    group = new_group()
    narrow = TableSchema("bank", "B", "T", 1, (Column("ID", INT64), Column("N", INT32)), ("ID",))
    wide = TableSchema("bank", "B", "T", 2, (Column("ID", INT64), Column("N", INT64)), ("ID",))
    text = TableSchema("bank", "B", "T", 3, (Column("ID", INT64), Column("N", STRING)), ("ID",))
    with group.topic as topic:
        topic.transaction((narrow, "c", None, (1, 1)))
        topic.transaction((wide, "c", None, (2, 1 << 40)))
    group.land()
    rows = Lake.open(group.lake).state("T").rows()
    assert sorted((r["ID"], r["N"]) for r in rows) == [(1, 1), (2, 1 << 40)]
    with group.topic as topic:
        topic.transaction((text, "c", None, (3, "three")))
    group.land()
    rows = Lake.open(group.lake).state("T").rows()
    assert {(r["ID"], r["N"]) for r in rows} == {(1, None), (2, None), (3, "three")}
    assert len({v.version for v in Lake.open(group.lake).versions("T")}) == 3


def test_truncates_and_skipped_transactions(new_group: NewGroup) -> None:
    group = new_group()
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 3))
        topic.skipped("an operator's word")
        topic.transaction((ACCOUNTS, "t", None, None), *_insert(ACCOUNTS, 7, 1))
    group.land()
    (manifest,) = _log(group)
    assert [(s.gsn, s.reason) for s in manifest.skipped] == [(2, "an operator's word")]
    assert [(t.gsn, t.seq) for f in manifest.files for t in f.truncates] == [(3, 1)]
    lake = Lake.open(group.lake)
    assert [r["ID"] for r in lake.state("ACCOUNTS").rows()] == [7]
    assert sorted(r["ID"] for r in lake.state("ACCOUNTS", as_of=2).rows()) == [0, 1, 2]


@pytest.mark.parametrize("fault", ["gap", "checksum", "count", "repeat"])
def test_an_ordered_topic_that_is_wrong_stops_the_landing(new_group: NewGroup, fault: str) -> None:
    group = new_group()
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 3))
        values = topic._values(_insert(ACCOUNTS, 5, 3))
        if fault == "gap":
            topic.gsn += 1
            topic.values(values)
        elif fault == "repeat":
            topic.gsn -= 1
            topic.values(values)
        else:
            topic.values(values)
    if fault in ("checksum", "count"):
        with group.topic as topic:
            topic.gsn += 1
            commit = topic.codec.encode(_commit(topic.source, 1 if fault == "checksum" else 2, 12345))
            for seq, value in enumerate([values[0], commit], 1):
                topic.raw(topic.gsn, seq, value)
    with pytest.raises(LandingError) as error:
        group.land()
    assert "ordered topic" in str(error.value)
    assert not _log(group), "nothing of this batch was landed"


def _commit(source: str, changes: int, checksum: int) -> Commit:
    return Commit(source, 1, "x", Order(1, 1), 1, 1, changes, checksum)


def test_a_topic_that_was_made_again_stops_the_landing(new_group: NewGroup) -> None:
    group = new_group()
    with group.topic as topic:
        topic.transaction(*_insert(ACCOUNTS, 0, 3))
    group.land()
    admin = AdminClient({"bootstrap.servers": group.settings.kafka.bootstrap_servers})
    admin.delete_topics([group.topic.name])[group.topic.name].result()
    with pytest.raises(TopicError, match="was landed from"):
        _until_made_again(group)


def _until_made_again(group: Group) -> None:
    for _ in range(50):
        try:
            return group.land()
        except TopicError as error:
            if "was landed from" in str(error):
                raise
            time.sleep(0.2)
    return None
