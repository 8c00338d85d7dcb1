"""Transactions: what is published, whole, and in which order."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from tests.unit.simulated_rac.test_kit import (
    TABLE,
    Runtime,
    account,
    check_all,
    committed,
    doubtful,
    ids,
    new_cluster,
    write,
)

from lowwater.records.positions import Order
from lowwater_devkit.simulated_rac.workload import ACCOUNTS
from lowwater_extractor.sources.oracle.position import Resume


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
    assert runtime.released() == [t.txid for t in (three, two, one)]


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


def test_what_the_database_does_itself_is_not_published_but_its_scns_count(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = cluster.begin(1, system=True)
    write(cluster, transaction, 1)
    cluster.rollback_to(transaction, 0)
    write(cluster, transaction, 2)
    scn = cluster.commit(transaction)
    user = committed(cluster, 1, 3)
    cluster.heartbeat()
    runtime.drain()
    assert [entry.system for entry in cluster.history] == [True, False]
    assert runtime.txids() == [user]
    assert runtime.marks[1] > Order.mark(scn)
    check_all(runtime, cluster.history)


def test_a_table_that_is_added_is_captured_from_its_first_row_on(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 2, lwn_bytes=1000)
    runtime = Runtime(tmp_path, read_bytes=4096)
    runtime.poll()
    opened = cluster.begin(1)
    write(cluster, opened, *range(20))
    cluster.flush()
    runtime.poll()
    for number, name in enumerate(("LATE", "LATER")):
        # both readers have read ahead of what was processed
        for thread in (1, 2):
            committed(cluster, thread, *range(30))
        cluster.add_table(replace(ACCOUNTS, table=name))
        cluster.insert(opened, f"BANK.{name}", account(number))
        other = cluster.begin(2)
        cluster.insert(other, f"BANK.{name}", account(number))
        cluster.commit(other)
        runtime.poll()
        if number:
            runtime.restart()
    cluster.commit(opened)
    cluster.heartbeat()
    runtime.drain()
    check_all(runtime, cluster.history)
    assert {table.table for table in runtime.source.discover()} == {"ACCOUNTS", "TRANSFERS", "LATE", "LATER"}


# --- XA: a branch in each thread, for the log a transaction of its own ------------------------------------------


def test_each_branch_is_a_transaction_and_all_commit_at_one_scn(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 3)
    runtime = Runtime(tmp_path)
    transaction = cluster.begin(1, xa=True)
    for number, thread in enumerate([2, 1, 3, 1, 2, 2, 3]):
        write(cluster, transaction, number, thread=thread)
    other = committed(cluster, 2, 100)
    cluster.prepare(transaction)
    runtime.poll()
    assert runtime.txids() in ([], [other])
    scn = cluster.commit(transaction)
    cluster.heartbeat()
    runtime.drain()
    assert sorted(ids(runtime)) == [[0, 4, 5], [1, 3], [2, 6], [100]]
    assert [t.order.major for t in runtime.published if t.txid != other] == [scn] * 3
    check_all(runtime, cluster.history)


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


def test_a_commit_in_another_thread_waits_for_the_rows_and_holds_its_own(tmp_path: Path) -> None:
    """The rows are in thread 1, the commit is in thread 2, and thread 1 has not been read to it."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = doubtful(cluster, 1, 2)
    cluster.stop(1)
    scn = cluster.commit(transaction, thread=2)
    for _ in range(3):
        polled = runtime.poll()
        assert runtime.published == []
        assert polled.marks[2].order < Order(scn, 1)
        assert not polled.marks[2].at_end
    # a restart there changes nothing
    runtime.restart()
    runtime.poll()
    assert runtime.published == []
    cluster.recover(1, by=2)
    cluster.heartbeat()
    runtime.drain()
    assert [(t.thread, t.txid) for t in runtime.published] == [(2, transaction.txid)]
    check_all(runtime, cluster.history)


def test_commits_in_each_others_thread_do_not_wait_in_a_circle(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    both = [cluster.begin(1, xa=True), cluster.begin(2, xa=True)]
    for number, transaction in enumerate(both):
        write(cluster, transaction, number)
        cluster.prepare(transaction)
    # each by the instance that is not its own
    cluster.commit(both[0], thread=2, flush=False)
    cluster.commit(both[1], thread=1, flush=False)
    cluster.flush()
    cluster.heartbeat()
    runtime.drain()
    assert [(t.thread, t.txid) for t in sorted(runtime.published, key=lambda t: t.order)] == [
        (2, both[0].txid),
        (1, both[1].txid),
    ]
    check_all(runtime, cluster.history)


def test_a_held_thread_is_read_if_a_suspended_one_waits_for_it(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    transaction = doubtful(cluster, 1)
    cluster.commit(transaction, thread=2)
    cluster.heartbeat()
    for _ in range(4):
        runtime.poll(held=frozenset({1}))
    assert runtime.txids() == [transaction.txid]


def test_what_was_ended_in_another_thread_does_not_come_back_after_a_restart(tmp_path: Path) -> None:
    """Thread 1 is read again from the begin, because an older transaction is open there; thread 2 is not."""
    cluster = new_cluster(tmp_path)
    runtime = Runtime(tmp_path)
    runtime.poll()
    older = cluster.begin(1)
    write(cluster, older, 1)
    transaction = doubtful(cluster, 2)
    cluster.commit(transaction, thread=2)
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


def test_a_restart_inside_the_rollback_of_a_dead_instance(tmp_path: Path) -> None:
    """Thread 2 holds a part of the undo of thread 1's transaction; both tables are in it."""
    cluster = new_cluster(tmp_path, lwn_bytes=700)
    runtime = Runtime(tmp_path, read_bytes=4096)
    runtime.poll()
    dead = cluster.begin(1)
    for number in range(12):
        write(cluster, dead, number)
        cluster.insert(dead, "BANK.TRANSFERS", (number, 1, 2, 3, Decimal("1.0"), 4))
    cluster.flush()
    cluster.stop(1)
    cluster.recover(1, by=2)
    for number in range(20):
        runtime.poll(crash_after=0 if number % 3 == 1 else None)
        runtime.restart()
    last = committed(cluster, 2, 9)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.txids() == [last]
    assert [Resume.unpack(resume).open for resume in runtime.resumes.values()] == [[], []]


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
