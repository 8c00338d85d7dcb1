"""Threads that are idle, closed, stopped, added; and what the marks say meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import FakeEncoders, Runtime, account, check_all, committed, new_cluster

from lowwater.codec.rules import ColumnRules
from lowwater.errors import IncarnationError, SourceError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Chunk
from lowwater_devkit.simulated_rac.source import SimulatedRac, SimulatedRacConfig
from lowwater_extractor.api import ThreadState

TABLE = "BANK.ACCOUNTS"


def test_a_thread_between_two_logs_still_holds_the_watermark(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    cluster.switch(2)
    next_scn = cluster.scn
    for number in range(3):
        committed(cluster, 1, number)
    cluster.heartbeat(1)
    runtime.drain()
    assert runtime.marks[2] == Order.mark(next_scn - 1)
    assert runtime.released() == []


def test_an_instance_that_stops_without_a_word_holds_the_watermark(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.heartbeat()
    dead = cluster.begin(2)
    cluster.insert(dead, TABLE, account(1))
    cluster.flush(2)
    cluster.stop(2)
    held = None
    for number in range(10):
        committed(cluster, 1, number)
        cluster.heartbeat(1)
        polled = runtime.poll()
        held = held or polled.marks[2].order
        assert polled.marks[2].order == held
        assert polled.marks[2].state is ThreadState.OPEN
    assert runtime.released() == []
    assert len(runtime.published) == 10
    cluster.restart(2)
    runtime.drain()
    assert len(runtime.released()) == 10
    check_all(runtime, cluster.history)


def test_a_silent_thread_does_not_hold_what_another_reads_again(tmp_path: Path) -> None:
    """After a restart thread 1 is read again from an old begin on, with changes that were taken back on the way."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    older, other = cluster.begin(1), cluster.begin(1)
    cluster.insert(older, TABLE, account(1))
    cluster.insert(other, TABLE, account(2))
    cluster.rollback_to(other, 0)
    cluster.insert(other, TABLE, account(3))
    cluster.commit(other)
    runtime.poll()
    runtime.restart()
    last = committed(cluster, 1, 4)
    runtime.poll()
    assert runtime.txids() == [other.txid, last]


def test_a_dead_instances_rollback_in_another_threads_log(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    dead = cluster.begin(2)
    for number in range(5):
        cluster.insert(dead, TABLE, account(number))
    cluster.flush(2)
    lost = cluster.begin(2)
    cluster.insert(lost, TABLE, account(9))
    cluster.stop(2, torn=60)
    runtime.poll()
    runtime.poll()
    cluster.recover(2, by=1)
    last = committed(cluster, 1, 10)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.released() == [last]
    assert runtime.last is not None
    assert runtime.last.marks[2].state is ThreadState.CLOSED
    # nothing of it is left open
    resume = json.loads(runtime.resumes[2])
    assert resume[2] == resume[3]
    check_all(runtime, cluster.history)


def test_a_commit_lost_with_its_instance_is_not_published(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(2)
    cluster.insert(transaction, TABLE, account(1))
    cluster.flush(2)
    cluster.commit(transaction, flush=False)
    cluster.stop(2)
    cluster.restart(2)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.published == []
    assert cluster.history == []


def test_xa_in_doubt_is_ended_by_another_instance(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 3)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1, xa=True)
    cluster.insert(transaction, TABLE, account(1), thread=1)
    cluster.insert(transaction, TABLE, account(2), thread=2)
    cluster.prepare(transaction)
    cluster.stop(1)
    cluster.recover(1, by=3)
    runtime.poll()
    cluster.commit(transaction, thread=3)
    cluster.heartbeat()
    runtime.drain()
    # the branch of the instance that lives is ended by that one
    assert sorted(t.thread for t in runtime.published) == [2, 3]
    check_all(runtime, cluster.history)


def test_a_closed_thread_stays_in_the_marks_and_follows_the_current_scn(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    committed(cluster, 2, 1)
    cluster.close_thread(2)
    runtime.poll()
    order = []
    for number in range(5):
        order.append(committed(cluster, 1, number))
        cluster.heartbeat(1)
    before = cluster.scn
    runtime.poll()
    cluster.advance(50)
    cluster.write_control()
    polled = runtime.poll()
    # the SCN that was current before the look that found it closed
    assert polled.marks[2].order <= Order.mark(before)
    runtime.drain()
    assert runtime.last is not None
    assert runtime.last.marks[2].state is ThreadState.CLOSED
    assert runtime.marks[2] == Order.mark(cluster.scn)
    check_all(runtime, cluster.history)


def test_a_closed_thread_opens_again_above_its_mark(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    cluster.close_thread(2)
    runtime.drain()
    for number in range(3):
        cluster.open_thread(2)
        committed(cluster, 2, number)
        if number == 1:
            runtime.poll()
        cluster.close_thread(2)
        committed(cluster, 1, number)
        runtime.drain()
        runtime.restart()
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_an_added_thread_enters_before_the_others_pass_it(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    committed(cluster, 1, 1)
    runtime.drain()
    cluster.add_thread(2)
    first = cluster.instances[2].enabled_scn
    early = committed(cluster, 2, 2)
    late = [committed(cluster, 1, number) for number in range(3, 6)]
    cluster.heartbeat(1)
    polled = runtime.poll()
    assert polled.marks[2].order == Order.mark(first - 1)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.released()[-4:] == [early, *late]
    check_all(runtime, cluster.history)


def test_marks_do_not_pass_the_last_look_at_the_control_file(tmp_path: Path) -> None:
    """The log is ahead of what the control file said: a thread may have been opened in between."""
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    old = cluster.layout.control.read_bytes()
    scn = cluster.scn
    committed(cluster, 1, 1)
    cluster.heartbeat()
    cluster.layout.control.write_bytes(old)
    polled = runtime.poll()
    assert polled.marks[1].order == Order.mark(scn)
    cluster.write_control()
    assert runtime.poll().marks[1].order > Order.mark(scn)


def test_a_thread_added_while_nobody_looked(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.drain()
    cluster.add_thread(2)
    committed(cluster, 2, 1)
    cluster.switch(2)
    committed(cluster, 1, 2)
    cluster.heartbeat()
    runtime.restart()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_a_held_thread_is_not_read(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    one, two = committed(cluster, 1, 1), committed(cluster, 2, 2)
    cluster.heartbeat()
    polled = runtime.poll(held=frozenset({1}))
    assert runtime.txids() == [two]
    assert not polled.marks[1].at_end
    runtime.poll()
    assert runtime.txids() == [two, one]


def test_a_poll_reads_a_bounded_amount_of_each_thread(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path, read_bytes=8192)
    runtime.poll()
    for number in range(100):
        committed(cluster, 1 + number % 2, number)
    counts = {1: 0, 2: 0}
    for transaction in runtime.poll().transactions:
        counts[transaction.thread] += 1
    assert 0 < counts[1] < 10
    assert 0 < counts[2] < 10


def test_resetlogs_is_another_incarnation(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    assert runtime.source.incarnation() == "4711.1"
    committed(cluster, 1, 1)
    runtime.poll()
    cluster.reset_logs()
    with pytest.raises(IncarnationError):
        runtime.poll()
    assert runtime.source.incarnation() == "4711.2"
    with pytest.raises(IncarnationError, match="belongs to incarnation"):
        runtime.restart()


def test_a_position_of_a_thread_that_is_not_there_is_refused(tmp_path: Path) -> None:
    new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    runtime.resumes[7] = runtime.resumes[1]
    with pytest.raises(IncarnationError, match="thread 7"):
        runtime.restart()
    runtime.resumes = {1: b"not ours"}
    with pytest.raises(SourceError, match="not one of a redo thread"):
        runtime.restart()


def test_only_acknowledged_logs_are_let_go(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    opened = cluster.begin(1)
    cluster.insert(opened, TABLE, account(1))
    for _ in range(4):
        cluster.switch(1)
    runtime.drain()
    runtime.stream.acknowledge(runtime.resumes)
    cluster.delete_acknowledged()
    assert cluster.layout.archive(1, 1).exists()
    cluster.commit(opened)
    cluster.heartbeat()
    runtime.drain()
    runtime.stream.acknowledge(runtime.resumes)
    cluster.delete_acknowledged()
    assert not cluster.layout.archive(1, 4).exists()
    runtime.restart()
    committed(cluster, 1, 2)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_discover_and_no_copy(tmp_path: Path) -> None:
    new_cluster(tmp_path)
    source = SimulatedRac("bank", SimulatedRacConfig(directory=tmp_path))
    tables = source.discover()
    assert [table.full_name for table in tables] == ["BANK.ACCOUNTS", "BANK.TRANSFERS"]
    assert {table.source for table in tables} == {"bank"}
    chunk = Chunk("bank", "c1", "BANK.ACCOUNTS", 1, 1, 7, b"", ORDER_MIN, ORDER_MIN, 0)
    for call in (lambda: source.begin_view(["BANK.ACCOUNTS"]), lambda: source.read_chunk(chunk, "", ColumnRules())):
        with pytest.raises(SourceError, match="has no copy"):
            call()
    source.stream({}, {}, FakeEncoders()).close()
