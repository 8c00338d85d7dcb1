"""Logs that are half written, overwritten, gone or damaged, through the whole source; its reader: tests/unit/oracle."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import Runtime, account, check_all, committed, new_cluster

from lowwater.errors import IncarnationError, LogCorruptError, LogGapError, SourceError
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.source import SimulatedRac, SimulatedRacConfig

TABLE = "BANK.ACCOUNTS"
BLOCK = 512


def flip(path: Path, at: int, bit: int = 0) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1 << bit]))


def test_an_lwn_that_is_half_written_is_not_there_yet(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    first = committed(cluster, 1, 1)
    transaction = cluster.begin(1)
    for number in range(20):
        cluster.insert(transaction, TABLE, account(number))
    cluster.commit(transaction, flush=False)
    runtime.drain()
    resume = runtime.resumes[1]
    for keep in (1, 20, 60, 600, 1024, 100_000):
        cluster.tear(1, keep)
        runtime.poll()
        assert runtime.txids() == [first]
        assert runtime.resumes[1] == resume
    cluster.flush(1)
    runtime.poll()
    assert runtime.txids() == [first, transaction.txid]
    check_all_read(runtime, cluster)


def check_all_read(runtime: Runtime, cluster: Cluster) -> None:
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_one_wrong_bit_in_a_closed_log_is_an_error_that_says_where(tmp_path: Path, archived: bool, seed: int) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    start = cluster.instances[1].offset
    ends = []
    for number in range(10):
        committed(cluster, 1, number)
        ends.append(cluster.instances[1].offset)
    for _ in range(2 if archived else 1):
        cluster.switch(1)
    path = cluster.layout.archive(1, 1) if archived else cluster.layout.online(1, 1)
    rng = random.Random(seed)
    at = rng.randrange(start, ends[-1])
    flip(path, at, rng.randrange(8))
    with pytest.raises(LogCorruptError, match=f"block {at // BLOCK}: ") as caught:
        runtime.drain()
    assert caught.value.thread == 1
    lwn = max(begin for begin in [start, *ends] if begin <= at)
    assert caught.value.position == f"sequence 1 offset {lwn} record 0"


def test_one_wrong_bit_in_the_log_that_is_written_is_waited_out(tmp_path: Path) -> None:
    """Nobody can tell it from a block that is being written."""
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    path, at = cluster.layout.online(1, 1), cluster.instances[1].offset
    committed(cluster, 1, 1)
    flip(path, at + 100)
    runtime.drain()
    assert runtime.published == []
    flip(path, at + 100)
    check_all_read(runtime, cluster)


def test_an_archived_log_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    committed(cluster, 1, 1)
    cluster.switch(1)
    cluster.switch(1)
    path = cluster.layout.archive(1, 1)
    path.write_bytes(path.read_bytes()[:-BLOCK])
    with pytest.raises(LogCorruptError):
        runtime.drain()


def test_overwritten_before_it_was_read_loses_nothing(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 2, groups=2, log_bytes=4000)
    runtime = Runtime(tmp_path, read_bytes=1000)
    runtime.poll()
    for number in range(60):
        committed(cluster, 1 + number % 2, number, number + 1)
        if number % 20 == 0:
            runtime.poll()
    cluster.heartbeat()
    check_all_read(runtime, cluster)
    assert cluster.instances[1].sequence > 4


def test_a_log_that_is_gone_is_a_gap_with_its_thread_and_sequence(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 2, groups=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    for _ in range(4):
        cluster.switch(2)
    cluster.delete_archives(2, below=3)
    with pytest.raises(LogGapError, match="log 1 of thread 2 is neither online nor archived") as caught:
        runtime.drain()
    assert caught.value.thread == 2
    assert "restore sequence 1 of thread 2" in str(caught.value)


def test_logs_of_another_incarnation_are_never_read(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    control = cluster.layout.control.read_bytes()
    committed(cluster, 1, 1)
    cluster.reset_logs()
    committed(cluster, 1, 2)
    # the control file is not looked at in time: the logs' headers say it
    cluster.layout.control.write_bytes(control)
    with pytest.raises((IncarnationError, LogGapError)):
        runtime.drain()
    assert runtime.published == []


def test_the_next_log_begins_with_exactly_the_next_scn(tmp_path: Path) -> None:
    """What the mark at a log's end rests on: next SCN − 1."""
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    committed(cluster, 1, 1)
    cluster.switch(1)
    transaction = cluster.begin(1)
    cluster.insert(transaction, TABLE, account(2))
    cluster.flush(1)
    assert transaction.branches[1].segment.begin_scn == cluster.scn
    runtime.poll()
    assert runtime.marks[1].major == cluster.scn - 1
    cluster.commit(transaction)
    check_all_read(runtime, cluster)


def test_control_file_missing_or_broken(tmp_path: Path) -> None:
    source = SimulatedRac("rac", SimulatedRacConfig(directory=tmp_path))
    assert not source.check()[0].is_good
    with pytest.raises(SourceError, match=r"control\.json is missing"):
        source.incarnation()
    Layout(tmp_path).control.write_text("{")
    with pytest.raises(LogCorruptError, match="not JSON"):
        source.incarnation()
