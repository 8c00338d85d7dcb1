"""What must not happen in a log, and is never passed over."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import (
    TABLE,
    Runtime,
    account,
    new_cluster,
)

from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.redo.pairs import Undo, UndoSegment


def raw(cluster: Cluster, scn: int, record: bytes) -> None:
    """A record that the cluster would not write."""
    cluster.instances[1].record(scn, None, record)
    cluster.instances[1].flush(cluster.now_us())
    cluster.write_control()


def stranger(cluster: Cluster) -> UndoSegment:
    """A transaction of thread 1 whose begin is not in the log."""
    segment = cluster._join(cluster.begin(1), 1).segment
    segment.begin_scn = cluster.scn
    return segment


def change_of(
    cluster: Cluster, segment: UndoSegment, scn: int, table: str = TABLE, number: int = 1
) -> tuple[bytes, Undo]:
    row = account(number) if table == TABLE else (number, 1, 2, 3, Decimal("1.0"), 4)
    (pair,) = cluster._tables[table].insert(row)
    return cluster._vectors.change(segment, scn, pair)


def test_a_record_at_or_below_its_threads_mark_stops_the_source(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.heartbeat()
    runtime.poll()
    scn = cluster.scn - 1
    raw(cluster, scn, cluster._vectors.begin_alone(stranger(cluster), scn))
    with pytest.raises(MarkBrokenError, match="at or below the thread's mark") as caught:
        runtime.poll()
    assert caught.value.thread == 1
    assert "sequence 1" in str(caught.value)


@pytest.mark.parametrize("what", ["row", "commit", "rollback", "undo"])
def test_a_record_without_a_begin_is_an_error_never_left_out(tmp_path: Path, what: str) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    segment, scn, vectors = stranger(cluster), cluster.advance(2), cluster._vectors
    change, undo = change_of(cluster, segment, scn)
    records = {
        "row": change,
        "commit": vectors.commit(segment, scn, 1_700_000_000),
        "rollback": vectors.rollback(segment, scn, 1_700_000_000),
        "undo": vectors.take_back(segment, scn, undo),
    }
    raw(cluster, scn, records[what])
    with pytest.raises(LogGapError, match="its begin was not read"):
        runtime.poll()


def test_an_end_whose_rows_no_thread_has_is_an_error(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    scn = cluster.advance(2)
    raw(cluster, scn, cluster._vectors.commit(stranger(cluster), scn, 1_700_000_000))
    cluster.heartbeat()
    with pytest.raises(LogGapError, match="its begin was not read"):
        runtime.drain()


@pytest.mark.parametrize("what", ["begins twice", "undo of nothing", "undo of another table", "undo of another row"])
def test_what_contradicts_itself_is_an_error(tmp_path: Path, what: str) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    segment, scn, vectors = stranger(cluster), cluster.advance(2), cluster._vectors
    raw(cluster, scn, vectors.begin_alone(segment, scn))
    scn += 1
    if what == "begins twice":
        raw(cluster, scn, vectors.begin_alone(segment, scn))
    else:
        change, undo = change_of(cluster, segment, scn, "BANK.TRANSFERS")
        if what.startswith("undo of another"):
            raw(cluster, scn, change)
            scn += 1
            table = "BANK.TRANSFERS" if what == "undo of another row" else TABLE
            _, undo = change_of(cluster, segment, scn, table, number=2)
        raw(cluster, scn, vectors.take_back(segment, scn, undo))
    message = "begins twice" if what == "begins twice" else "that it does not have"
    with pytest.raises(LogCorruptError, match=message):
        runtime.poll()


def test_a_table_that_is_altered_stops_the_source(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = cluster.begin(1)
    cluster.ddl(transaction, TABLE, "ALTER TABLE BANK.ACCOUNTS ADD (NOTE VARCHAR2(10))")
    cluster.commit(transaction)
    with pytest.raises(LogUnknownError, match=r"BANK\.ACCOUNTS was altered"):
        runtime.poll()
