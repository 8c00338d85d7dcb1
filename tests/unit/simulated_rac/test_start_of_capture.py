"""The start of capture: what is open then comes whole, what ended before does not come."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import (
    Runtime,
    check_all,
    committed,
    doubtful,
    ids,
    new_cluster,
    write,
)

from lowwater.errors import StartRefusedError
from lowwater_devkit.simulated_rac.cluster import Cluster, Transaction
from lowwater_devkit.simulated_rac.view import SimulatedView
from lowwater_extractor.sources.oracle.position import Resume
from lowwater_extractor.sources.oracle.thread_snapshot import Start


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


@pytest.mark.parametrize("commits", [True, False])
def test_what_another_instance_ended_before_the_start_is_not_open(tmp_path: Path, commits: bool) -> None:
    """An older transaction makes capture read from before that end."""
    cluster = new_cluster(tmp_path)
    older = cluster.begin(2)
    write(cluster, older, 1)
    cluster.flush()
    ended = doubtful(cluster, 2, 3)
    cluster.stop(1)
    cluster.recover(1, by=2)
    if commits:
        cluster.commit(ended, thread=2)
    else:
        cluster.rollback(ended, thread=2)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.commit(older)
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[1]]
    assert [Resume.unpack(resume).open for resume in runtime.resumes.values()] == [[], []]


def test_an_end_that_lies_in_a_log_which_is_not_read(tmp_path: Path) -> None:
    """Thread 1 is read from a log on that is older than the one with which thread 2 begins."""
    cluster = new_cluster(tmp_path)
    cluster.commit(doubtful(cluster, 1, 2), thread=2)
    cluster.switch(2)
    opened = cluster.begin(1)
    write(cluster, opened, 3)
    cluster.flush()
    runtime = Runtime(tmp_path)
    cluster.commit(opened)
    cluster.heartbeat()
    runtime.drain()
    assert ids(runtime) == [[3]]
    assert [Resume.unpack(resume).open for resume in runtime.resumes.values()] == [[], []]


def test_what_has_begun_in_a_buffer_at_the_start_is_whole(tmp_path: Path) -> None:
    """Its begin is older than that of all that is in the logs, and comes into a later log."""
    cluster = new_cluster(tmp_path)
    early = cluster.begin(2)
    write(cluster, early, 1)
    for _ in range(3):
        cluster.advance()
        cluster.instances[1].switch(cluster.advance())
    late = cluster.begin(1)
    write(cluster, late, 2)
    cluster.flush(1)
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.commit(early)
    cluster.commit(late)
    cluster.heartbeat()
    runtime.drain()
    assert sorted(ids(runtime)) == [[1], [2]]


def test_capture_begins_inside_the_rollback_of_a_dead_instance(tmp_path: Path) -> None:
    """A part of the undo is in thread 2 before the start of capture, the rest behind it."""
    cluster = new_cluster(tmp_path)
    dead = cluster.begin(1)
    write(cluster, dead, 1)
    cluster.insert(dead, "BANK.TRANSFERS", (1, 1, 2, 3, Decimal("1.0"), 4))
    cluster.flush()
    cluster.stop(1)
    cluster.instances[1].state = "closed"
    cluster.advance()
    cluster._take_back(dead.branches[1], 2)
    cluster.flush()
    cluster.advance()
    cluster.write_control()
    runtime = Runtime(tmp_path)
    runtime.poll()
    cluster.rollback(dead, thread=2)
    last = committed(cluster, 2, 5)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.txids() == [last]


def test_what_is_rolled_back_for_a_dead_instance_needs_no_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of its begin is gone, and the database says that it cannot commit: nothing is refused, nothing lost."""
    cluster = new_cluster(tmp_path, groups=2)
    dead = begin_and_lose_its_log(cluster)
    cluster.stop(1)
    cluster.instances[1].state = "closed"
    cluster.advance()
    cluster.write_control()

    def start(view: SimulatedView, asked: Callable[[SimulatedView], Start] = SimulatedView.start) -> Start:
        found = asked(view)
        return found._replace(first_scn=found.since, open=[], dead=[each.xid for each in found.open])

    monkeypatch.setattr(SimulatedView, "start", start)
    runtime = Runtime(tmp_path)
    runtime.poll()
    runtime.restart()
    cluster.rollback(dead, thread=2)
    last = committed(cluster, 2, 5)
    cluster.heartbeat()
    runtime.drain()
    assert runtime.txids() == [last]
    assert runtime.left_out == []
    assert all(not Resume.unpack(resume).left_out for resume in runtime.resumes.values())


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
    with pytest.raises(StartRefusedError, match=transaction.txid) as caught:
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
    assert [(thread, txid) for thread, txid, _ in runtime.left_out] == [(1, left_out.txid)]
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
