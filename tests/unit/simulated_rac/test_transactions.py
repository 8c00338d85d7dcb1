"""Transactions: what is published, whole, and in which order."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import Runtime, account, check_all, committed, new_cluster

from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError, StartRefusedError
from lowwater.positions import Order
from lowwater_extractor.sources.simulated_rac import log
from lowwater_extractor.sources.simulated_rac.cluster import Cluster, Transaction

TABLE = "BANK.ACCOUNTS"


def write(cluster: Cluster, transaction: Transaction, *numbers: int, thread: int | None = None) -> None:
    for number in numbers:
        cluster.insert(transaction, TABLE, account(number), thread)


def ids(runtime: Runtime) -> list[list[int]]:
    """The keys of the accounts in each published transaction."""
    return [[(after or before)[0] for _, _, before, after in rows] for rows in runtime.contents]


def test_transactions_of_both_threads_interleave_and_come_whole(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    one, two, three = cluster.begin(1), cluster.begin(2), cluster.begin(1)
    for number in range(6):
        write(cluster, (one, two, three)[number % 3], number)
        cluster.flush()
        runtime.poll()
    assert runtime.published == []
    cluster.commit(three)
    cluster.commit(two)
    cluster.commit(one)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert runtime.released() == [f"{t.xid:016x}" for t in (three, two, one)]


def test_all_operations_with_their_images(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1)
    cluster.insert(transaction, TABLE, account(1, 10))
    cluster.update(transaction, TABLE, account(1, 10), account(1, 20))
    cluster.delete(transaction, TABLE, account(1, 20))
    cluster.commit(transaction)
    runtime.drain()
    assert runtime.contents == [
        [
            ("c", TABLE, None, account(1, 10)),
            ("u", TABLE, account(1, 10), account(1, 20)),
            ("d", TABLE, account(1, 20), None),
        ]
    ]
    (published,) = runtime.published
    assert published.count == 3
    assert published.size_bytes > 100
    assert published.commit_ts_us == cluster.history[0].time_us
    assert list(published.changes) == list(published.changes)


def test_a_transaction_that_spans_log_switches(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, groups=2)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1)
    for number in range(6):
        write(cluster, transaction, number)
        cluster.switch(1)
        runtime.poll()
        runtime.restart()
    cluster.commit(transaction)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_equal_commit_scns_on_two_threads(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    both = [cluster.begin(2), cluster.begin(1)]
    for number, transaction in enumerate(both):
        write(cluster, transaction, number)
    scn = cluster.commit_together(both)
    runtime.poll()
    polled = runtime.poll()
    # S − 1: a mark never covers the SCN at which another commit may still come
    assert min(mark.order for mark in polled.marks.values()) < Order(scn, 1)
    cluster.heartbeat()
    runtime.drain()
    assert {t.order.major for t in runtime.published} == {scn}
    check_all(runtime, cluster.history)


def test_xa_commits_with_equal_scns_do_not_wait_for_each_other_in_a_circle(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    both = [cluster.begin(1, xa=True), cluster.begin(2, xa=True)]
    for number, transaction in enumerate(both):
        write(cluster, transaction, number, thread=1)
        write(cluster, transaction, number + 10, thread=2)
    cluster.commit_together(both)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_the_next_logs_first_record_may_carry_exactly_the_next_scn(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    committed(cluster, 1, 1)
    cluster.switch(1)
    next_scn = cluster.scn
    runtime.poll()
    polled = runtime.poll()
    assert polled.marks[1].order == Order.mark(next_scn - 1)
    # a commit at exactly next SCN: the clock has not moved on
    transaction = cluster.begin(1)
    write(cluster, transaction, 2)
    cluster.scn -= 1
    cluster.commit(transaction)
    assert cluster.scn == next_scn
    cluster.heartbeat()
    runtime.drain()
    assert [t.order.major for t in runtime.published][-1] == next_scn
    check_all(runtime, cluster.history)


def test_rollback_and_rollback_to_savepoint(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    gone, kept, empty = cluster.begin(1), cluster.begin(1), cluster.begin(2)
    write(cluster, gone, 1, 2)
    write(cluster, kept, 3, 4)
    savepoint = cluster.savepoint(kept)
    write(cluster, kept, 5, 6)
    cluster.flush()
    runtime.poll()
    cluster.rollback_to(kept, savepoint)
    write(cluster, kept, 7)
    write(cluster, empty, 8)
    cluster.rollback_to(empty, 0)
    cluster.rollback(gone)
    cluster.commit(kept)
    cluster.commit(empty)
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[3, 4, 7]]
    check_all(runtime, cluster.history)


def test_system_transactions_are_left_out_but_their_scns_count(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    without, everything = Runtime(tmp_path), Runtime(tmp_path, include_system=True)
    without.poll()
    everything.poll()
    transaction = cluster.begin(1, system=True)
    write(cluster, transaction, 1)
    cluster.rollback_to(transaction, 0)
    write(cluster, transaction, 2)
    scn = cluster.commit(transaction)
    user = committed(cluster, 1, 3)
    cluster.heartbeat()
    without.drain()
    everything.drain()
    assert without.txids() == [user]
    assert without.marks[1] > Order.mark(scn)
    assert ids(everything) == [[2], [3]]
    check_all(without, cluster.history)
    check_all(everything, cluster.history, system=True)


def test_xa_is_one_transaction_in_the_order_of_its_changes(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 3)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1, xa=True)
    for number, thread in enumerate([2, 1, 3, 1, 2, 2, 3]):
        write(cluster, transaction, number, thread=thread)
    other = committed(cluster, 2, 100)
    cluster.prepare(transaction)
    runtime.poll()
    assert runtime.txids() in ([], [other])
    cluster.commit(transaction)
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[100], list(range(7))]
    assert runtime.published[-1].thread == 1
    check_all(runtime, cluster.history)


def test_xa_commit_waits_for_the_other_threads_and_holds_only_its_own(tmp_path: Path) -> None:
    """The commit is in thread 1; thread 2 has not been read to it."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = cluster.begin(1, xa=True)
    write(cluster, transaction, 1, thread=1)
    write(cluster, transaction, 2, thread=2)
    scn = cluster.commit(transaction)
    for _ in range(3):
        polled = runtime.poll(held=frozenset({1}))
        polled = runtime.poll()
        assert runtime.published == []
        assert polled.marks[1].order < Order(scn, 1)
        assert not polled.marks[1].at_end
    # a restart there changes nothing
    runtime.restart()
    later = committed(cluster, 2, 3)
    cluster.heartbeat(2)
    runtime.drain()
    assert set(runtime.txids()) == {later, f"{transaction.xid:016x}"}
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)


def test_a_held_thread_is_read_if_a_suspended_one_waits_for_it(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = cluster.begin(1, xa=True)
    write(cluster, transaction, 1, thread=2)
    cluster.commit(transaction)
    cluster.heartbeat()
    for _ in range(4):
        runtime.poll(held=frozenset({2}))
    assert runtime.txids() == [f"{transaction.xid:016x}"]


def test_xa_rollback(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1, xa=True)
    write(cluster, transaction, 1, thread=1)
    write(cluster, transaction, 2, thread=2)
    cluster.prepare(transaction)
    runtime.poll()
    cluster.rollback(transaction)
    last = committed(cluster, 2, 3)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.txids() == [last]
    check_all(runtime, cluster.history)


def test_a_closed_xa_transaction_does_not_come_back_after_a_restart(tmp_path: Path) -> None:
    """Thread 2 is read again from the begin, because an older transaction is open there; thread 1 is not."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    older = cluster.begin(2)
    write(cluster, older, 1)
    transaction = cluster.begin(1, xa=True)
    write(cluster, transaction, 2, thread=2)
    cluster.commit(transaction)
    cluster.heartbeat()
    runtime.drain()
    assert len(runtime.published) == 1
    runtime.restart()
    runtime.drain()
    cluster.commit(older)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    runtime.restart()
    polled = runtime.poll()
    assert all(mark.at_end for mark in polled.marks.values())


# --- the start of capture -----------------------------------------------------------------------------------


def test_transactions_open_at_the_start_are_whole_and_earlier_commits_are_not_published(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    before = committed(cluster, 1, 1)
    opened, ended = cluster.begin(1), cluster.begin(1)
    write(cluster, opened, 2)
    write(cluster, ended, 3)
    cluster.switch(1)
    cluster.commit(ended)
    write(cluster, opened, 4)
    cluster.flush()
    runtime = Runtime(tmp_path)
    runtime.poll()
    runtime.restart()
    write(cluster, opened, 5)
    cluster.commit(opened)
    cluster.heartbeat()
    runtime.drain()
    assert before not in runtime.txids()
    assert ids(runtime) == [[2, 4, 5]]
    check_all(runtime, cluster.history)


def test_a_commit_that_was_in_the_buffer_at_the_start(tmp_path: Path) -> None:
    """Its SCN lies before the start of capture, its record behind it in the log."""
    cluster = new_cluster(tmp_path, 1)
    transaction = cluster.begin(1)
    write(cluster, transaction, 1)
    cluster.commit(transaction, flush=False)
    cluster.write_control()
    runtime = Runtime(tmp_path)
    runtime.poll()
    after = committed(cluster, 1, 2)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.txids() == [after]
    check_all(runtime, cluster.history)


def begin_and_lose_its_log(cluster: Cluster) -> Transaction:
    transaction = cluster.begin(1)
    write(cluster, transaction, 1)
    cluster.flush()
    for _ in range(4):
        cluster.switch(1)
    cluster.delete_archives(1, below=3)
    return transaction


def test_start_is_refused_if_the_log_of_an_open_transaction_is_gone(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, groups=2)
    transaction = begin_and_lose_its_log(cluster)
    with pytest.raises(StartRefusedError, match=f"{transaction.xid:016x}") as caught:
        Runtime(tmp_path)
    assert caught.value.thread == 1
    assert "leave_out" in str(caught.value)


def test_or_it_is_left_out_and_reported_if_the_operator_asked_for_it(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, groups=2)
    left_out = begin_and_lose_its_log(cluster)
    opened = cluster.begin(1)
    write(cluster, opened, 2)
    cluster.flush()
    runtime = Runtime(tmp_path, open_at_start="leave_out")
    runtime.poll()
    assert [(thread, txid) for thread, txid, _ in runtime.left_out] == [(1, f"{left_out.xid:016x}")]
    write(cluster, left_out, 3)
    cluster.flush()
    runtime.poll()
    # the choice outlives a restart
    runtime.restart()
    write(cluster, left_out, 4)
    cluster.commit(left_out)
    cluster.commit(opened)
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[2]]
    assert len(runtime.left_out) == 1
    runtime.restart()
    runtime.drain()


def test_capture_has_a_position_before_its_first_transaction(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    opened = cluster.begin(1)
    write(cluster, opened, 1)
    cluster.flush()
    runtime = Runtime(tmp_path)
    cluster.commit(opened)
    first = runtime.poll()
    assert first.transactions == []
    assert set(first.marks) == {1, 2}
    runtime.restart()
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[1]]


# --- what must not happen, and is never passed over ---------------------------------------------------------


def raw(cluster: Cluster, scn: int, code: int, data: bytes = b"\0", xid: int = 99) -> None:
    """A record that the cluster would not write."""
    cluster.instances[1].record(scn, xid, code, data)
    cluster.instances[1].flush(1)
    cluster.write_control()


def test_a_record_at_or_below_its_threads_mark_stops_the_source(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.heartbeat()
    runtime.poll()
    raw(cluster, cluster.scn - 1, log.BEGIN)
    with pytest.raises(MarkBrokenError, match="at or below the thread's mark") as caught:
        runtime.poll()
    assert caught.value.thread == 1
    assert "sequence 1" in str(caught.value)


@pytest.mark.parametrize("code", [log.ROW_INSERT | 1, log.COMMIT, log.ROLLBACK, log.UNDO | 1, log.PREPARE])
def test_a_record_without_a_begin_is_an_error_never_left_out(tmp_path: Path, code: int) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    raw(cluster, cluster.scn, code, b"\0" * 8)
    with pytest.raises(LogGapError, match="its begin was not read"):
        runtime.poll()


def test_an_xa_commit_whose_other_part_is_missing_is_an_error(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    raw(cluster, cluster.scn, log.BEGIN | log.FLAG_XA)
    raw(cluster, cluster.advance(), log.COMMIT | log.FLAG_CROSS, log.TIME.pack(1) + b"\2\0")
    cluster.heartbeat()
    with pytest.raises(LogGapError, match="in thread 2 were not read"):
        runtime.drain()


def test_unknown_records_tables_and_double_begins_are_errors(tmp_path: Path) -> None:
    for number, (code, error) in enumerate(
        [(0x60 << 16, LogUnknownError), (log.BEGIN, LogCorruptError), (log.UNDO | 1, LogCorruptError)]
    ):
        directory = tmp_path / str(number)
        directory.mkdir()
        cluster = new_cluster(directory, 1)
        runtime = Runtime(directory)
        runtime.poll()
        raw(cluster, cluster.scn, log.BEGIN)
        raw(cluster, cluster.scn, code)
        with pytest.raises(error):
            runtime.poll()
    cluster = new_cluster(tmp_path / "table", 1)
    runtime = Runtime(tmp_path / "table")
    runtime.poll()
    raw(cluster, cluster.scn, log.BEGIN)
    code = log.ROW_INSERT | 77
    raw(cluster, cluster.scn, code, code.to_bytes(4, "little") + b"\0" * 40)
    raw(cluster, cluster.advance(), log.COMMIT, log.TIME.pack(1))
    with pytest.raises(LogUnknownError, match="table object 77"):
        runtime.poll()


# --- spill --------------------------------------------------------------------------------------------------


def test_large_transactions_go_to_disk_and_can_be_read_again(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, lwn_bytes=2000, log_bytes=1 << 20)
    spill = tmp_path / "spill"
    runtime = Runtime(tmp_path, spill_bytes_max=5000, spill_directory=spill, read_bytes=2000)
    large, xa = cluster.begin(1), cluster.begin(2, xa=True)
    for number in range(300):
        write(cluster, large, number)
        write(cluster, xa, number, thread=1 + number % 2)
        runtime.poll()
    assert len(list(spill.glob("*/*.spill"))) >= 3
    cluster.rollback_to(large, 20)
    cluster.rollback_to(xa, 250)
    cluster.commit(large)
    cluster.commit(xa)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    for transaction, rows in zip(runtime.published, runtime.contents, strict=True):
        assert len(list(transaction.changes)) == len(rows) == transaction.count
    runtime.published.clear()
    del transaction
    runtime.last = None
    assert list(spill.glob("*/*.spill")) == []
    runtime.stream.close()
    assert list(spill.iterdir()) == []


def test_spill_of_a_killed_process_is_removed_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
    from lowwater_extractor.spill import SpillSpace

    living = SpillSpace(tmp_path)
    kept = living.file()
    kept.append(([b"x"], []))
    dead = tmp_path / "lowwater-spill-dead"
    dead.mkdir()
    (dead / "lock").touch()
    (dead / "1.spill").touch()
    SpillSpace(tmp_path).file()
    assert not dead.exists()
    assert list(kept) == [([b"x"], [])]
