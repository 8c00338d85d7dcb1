"""The cases that capture of a RAC cluster must get right, each by its name: on redo in the real format.

`released` is what a merger lets go: the transactions at or below the lowest mark, by commit SCN.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import (
    TABLE,
    Runtime,
    account,
    check_all,
    committed,
    doubtful,
    new_cluster,
    write,
)

from lowwater.errors import LogGapError
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_extractor.api import ThreadState


def in_commit_order(cluster: Cluster) -> list[str]:
    return [entry.txid for entry in sorted(cluster.history, key=lambda entry: (entry.scn, entry.thread, entry.txid))]


def test_single_instance_as_before(tmp_path: Path) -> None:
    """One thread needs no other: what it commits is released up to its last LWN, without a log switch."""
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    for number in range(5):
        committed(cluster, 1, number)
        runtime.poll()
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)
    assert cluster.instances[1].sequence == 1


def test_two_nodes(tmp_path: Path) -> None:
    """Changes of node 1, then of node 2, with no log switch: both are captured, in the order of their commit SCNs."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    for number in range(10):
        committed(cluster, 1 + number % 2, number)
        runtime.poll()
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)
    assert [instance.sequence for instance in cluster.instances.values()] == [1, 1]


def test_mixed_activity_with_an_idle_node(tmp_path: Path) -> None:
    """Heavy work on node 1, node 2 idle: its log writer's heartbeat lets node 1's transactions go, each time."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    done: list[str] = []
    for beat in range(3):
        new = [committed(cluster, 1, beat * 20 + number) for number in range(20)]
        runtime.drain()
        assert runtime.released() == done
        assert len(runtime.published) == len(done) + len(new)
        cluster.heartbeat(2)
        cluster.heartbeat(1)
        runtime.drain()
        done += new
        assert runtime.released() == done


def test_log_switch_during_load(tmp_path: Path) -> None:
    """Node 1 goes through its logs while both work, node 2 stays in its first one."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    spanning = cluster.begin(1)
    for number in range(24):
        committed(cluster, 1 + number % 2, number)
        write(cluster, spanning, 100 + number)
        if number % 4 == 3:
            cluster.switch(1)
        runtime.poll()
    cluster.commit(spanning)
    cluster.heartbeat()
    runtime.drain()
    assert (cluster.instances[1].sequence, cluster.instances[2].sequence) == (7, 1)
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)


def test_restart_with_no_duplicate(tmp_path: Path) -> None:
    """Killed at every place of its work; the resume holds sequence, offset, mark and what is open of each thread."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    open_ = cluster.begin(2)
    for number in range(9):
        committed(cluster, 1 + number % 2, number)
        write(cluster, open_, 100 + number)
        runtime.poll(crash_after=number % 3)
        runtime.poll()
        runtime.restart()
    cluster.heartbeat()
    runtime.drain()
    _, incarnation, start, read, mark, *_ = json.loads(runtime.resumes[1])
    assert incarnation == "4711.1"
    assert start == read == [1, cluster.instances[1].offset, 0]
    assert mark == runtime.marks[1].major
    _, _, start, read, _, _, _, opened, _ = json.loads(runtime.resumes[2])
    assert start < read
    assert len(opened) == 1
    cluster.commit(open_)
    cluster.heartbeat()
    runtime.restart()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)


def test_one_instance_down(tmp_path: Path) -> None:
    """It holds the watermark by its name until another instance has recovered it; then its closed thread does not."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    lost = cluster.begin(2)
    write(cluster, lost, 1)
    cluster.flush(2)
    cluster.stop(2)
    for number in range(10, 20):
        committed(cluster, 1, number)
        cluster.heartbeat(1)
        marks = runtime.poll().marks
        assert min(marks.values(), key=lambda mark: mark.order).thread == 2
        assert marks[2].state is ThreadState.OPEN
    assert (len(runtime.published), runtime.released()) == (10, [])
    cluster.recover(2, by=1)
    cluster.heartbeat(1)
    runtime.drain()
    assert runtime.last is not None
    assert runtime.last.marks[2].state is ThreadState.CLOSED
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)


def test_overwritten_on_one_thread(tmp_path: Path) -> None:
    """Thread 1 goes on from its archive, at the same place. Nothing is let go past the watermark meanwhile."""
    cluster = new_cluster(tmp_path, groups=2)
    runtime = Runtime(tmp_path, read_bytes=600)
    committed(cluster, 1, 0)
    runtime.poll()
    for number in range(1, 13):
        committed(cluster, 1, number)
        committed(cluster, 2, 100 + number)
        if number % 3 == 0:
            cluster.switch(1)
    cluster.heartbeat()
    released: list[str] = []
    for _ in range(200):
        runtime.poll()
        # what is released stays what it was: nothing comes in between later
        assert runtime.released()[: len(released)] == released
        released = runtime.released()
    check_all(runtime, cluster.history)
    assert released == in_commit_order(cluster)


def test_overwritten_on_one_thread_and_not_archived(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, groups=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    for number in range(12):
        committed(cluster, 1, number)
        cluster.switch(1)
    cluster.delete_archives(1, below=5)
    with pytest.raises(LogGapError, match=r"log \d of thread 1") as raised:
        runtime.drain()
    assert raised.value.thread == 1


def test_shutdown_with_transactions_deferred(tmp_path: Path) -> None:
    """What waits for the watermark at the shutdown is not let go by it, and comes in its place after the start."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.heartbeat()
    late = cluster.begin(2)
    write(cluster, late, 1)
    cluster.commit(late, flush=False)
    for number in range(10, 15):
        committed(cluster, 1, number)
    runtime.drain()
    assert (len(runtime.published), runtime.released()) == (5, [])
    runtime.restart()
    runtime.drain()
    assert (len(runtime.published), runtime.released()) == (5, [])
    # thread 2 writes what it had in memory all the time: it is the first in the order
    cluster.flush(2)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)
    assert runtime.released()[0] == late.txid


def test_distributed_transactions(tmp_path: Path) -> None:
    """Rows in thread 1, the commit in thread 2, which waits for thread 1 to be read that far."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    transaction = doubtful(cluster, 1, 2)
    cluster.stop(1)
    cluster.recover(1, by=2)
    cluster.commit(transaction, thread=2)
    committed(cluster, 2, 3)
    cluster.heartbeat(2)
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == in_commit_order(cluster)


def test_system_transactions(tmp_path: Path) -> None:
    """They are not published; their SCNs move the marks as any other's."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    for number in range(4):
        own = cluster.begin(1 + number % 2, system=True)
        cluster.insert(own, TABLE, account(number))
        cluster.commit(own)
        committed(cluster, 1, 10 + number)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_transactions_without_begin(tmp_path: Path) -> None:
    """There are none: capture begins at the oldest transaction that is open, so that it is whole."""
    cluster = new_cluster(tmp_path)
    open_ = cluster.begin(2)
    write(cluster, open_, 1)
    cluster.flush()
    cluster.switch(2)
    committed(cluster, 1, 50)
    runtime = Runtime(tmp_path)
    runtime.poll()
    write(cluster, open_, 2)
    cluster.commit(open_)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert [len(rows) for rows in runtime.contents] == [2]
