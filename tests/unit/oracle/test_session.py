"""LogMiner's sessions: windows that lose nothing, marks that hold, logs without gaps, restarts without repeats."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import Encoders
from tests.support.simulated_oracle import ACCOUNTS, SOURCE, OpenWork, SimulatedOracle

from lowwater.errors import IncarnationError, LogGapError, StartRefusedError
from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import Polled, SourceTransaction, ThreadState
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.logminer import session as sessions
from lowwater_extractor.sources.oracle.logminer.session import Reach
from lowwater_extractor.sources.oracle.logminer.stream import LogMinerStream, open_stream
from lowwater_extractor.sources.oracle.logminer.tables import MinedTables


def config_of(**more: Any) -> OracleConfig:
    settings: dict[str, Any] = {
        "capture": "logminer",
        "tables": ["BANK.*"],
        "host": "db",
        "service": "FREE",
        "user": "c##lowwater",
        "spill_bytes_max": 300,
        "logminer": {"batch_rows": 7, "window_scns_min": 5, "window_scns_max": 40, "look_seconds": 0},
        **more,
    }
    return OracleConfig(**settings)


class Reader:
    """The runtime's part: remembers resumes, marks and orders, passes over what was published."""

    def __init__(self, database: SimulatedOracle, directory: Path | None = None, **more: Any) -> None:
        self.database = database
        self.config = config_of(spill_directory=directory, **more)
        self.encoders = Encoders()
        self.resumes: dict[int, bytes] = {}
        self.marks: dict[int, Order] = {}
        self.published: dict[int, Order] = {}
        self.found: list[tuple[int, str, int, list[Any]]] = []
        self.stream = self.open()

    def open(self) -> LogMinerStream:
        tables = MinedTables([ACCOUNTS], self.config.wants, lambda scn, name: [ACCOUNTS])
        return open_stream(SOURCE, self.config, self.database, tables, self.encoders, self.resumes, self.marks)

    def restart(self) -> None:
        self.stream.close()
        self.stream = self.open()

    def poll(self) -> Polled:
        polled = self.stream.poll(frozenset())
        for transaction in polled.transactions:
            self._publish(transaction)
        for number, mark in polled.marks.items():
            assert mark.order >= self.marks.get(number, ORDER_MIN), "a mark goes back"
            self.resumes[number], self.marks[number] = mark.resume, mark.order
        return polled

    def _publish(self, transaction: SourceTransaction) -> None:
        thread, order = transaction.thread, transaction.order
        assert thread in self.marks, "a thread is named before its first commit"
        changes = [self._plain(n, frame) for n, frame in enumerate(transaction.changes, 1)]
        assert len(changes) == transaction.count
        if order <= self.published.get(thread, ORDER_MIN):
            assert (thread, transaction.txid, order.major, changes) in self.found
            return
        assert order > self.marks[thread], "a commit at or below its thread's mark"
        self.published[thread] = order
        self.found.append((thread, transaction.txid, order.major, changes))

    def _plain(self, number: int, frame: Any) -> tuple[Any, ...]:
        change = self.encoders.decode(frame, number)
        return (change.op, _text(change.before), _text(change.after))

    def drain(self) -> Reader:
        quiet, before = 0, None
        for _ in range(5000):
            polled = self.poll()
            ended = all(mark.at_end for mark in polled.marks.values())
            quiet = quiet + 1 if ended and not polled.transactions and self.marks == before else 0
            before = dict(self.marks)
            # each look takes an SCN, and each heartbeat too: the end moves on, without transactions
            if ended and not polled.transactions:
                return self
        raise AssertionError("it never comes to its end")


def _text(row: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    return None if row is None else (row[0], row[1], str(row[2]))


def in_order(found: list[tuple[int, str, int, list[Any]]]) -> list[tuple[int, str, int, list[Any]]]:
    return sorted(found, key=lambda each: (each[2], each[0]))


def test_a_transaction_comes_with_its_changes(tmp_path: Path) -> None:
    database = SimulatedOracle()
    reader = Reader(database, tmp_path)
    first = reader.poll()
    assert (first.transactions, set(first.marks)) == ([], {1})
    work = database.begin(1)
    database.insert(work, 1, "it's", "10.00")
    database.update(work, 1, "it's", "10.00", "7.50")
    database.insert(work, 2, None, "1.00")
    database.delete(work, 2, None, "1.00")
    database.commit(work)
    reader.drain()
    assert reader.found == database.history
    assert reader.found[0][3][1] == ("u", (1, "it's", "10.00"), (1, "it's", "7.50"))


def test_redo_in_an_instances_memory_is_not_passed_by(tmp_path: Path) -> None:
    """Thread 2 has changes of lower SCNs that are not written while thread 1 commits: the window stops before them."""
    database = SimulatedOracle(threads=2)
    reader = Reader(database, tmp_path).drain()
    database.write_all()
    reader.drain()
    slow = database.begin(2)
    database.insert(slow, 1, "slow", "1.00")
    quick = database.begin(1)
    database.insert(quick, 2, "quick", "2.00")
    database.commit(quick)
    held = database.threads[2].written
    for _ in range(5):
        reader.poll()
    assert reader.found == []
    assert reader.stream.holder == 2
    assert reader.marks[1] == reader.marks[2] == Order.mark(held - 1)
    database.commit(slow)
    database.write_all()
    reader.drain()
    assert in_order(reader.found) == database.history


def test_without_the_limit_it_would_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same with the rule taken away: so the test above can fail."""
    database = SimulatedOracle(threads=2)
    reader = Reader(database, tmp_path).drain()
    monkeypatch.setattr(sessions, "reach", lambda look, current: Reach(look.scn, None))
    slow = database.begin(2)
    database.insert(slow, 1, "slow", "1.00")
    reader.drain()
    database.insert(slow, 2, "slow", "1.00")
    database.commit(slow)
    with pytest.raises(LogGapError, match="begin was not read"):
        reader.drain()


def test_a_closed_thread_does_not_hold_and_a_new_one_is_named_first(tmp_path: Path) -> None:
    database = SimulatedOracle(threads=2)
    reader = Reader(database, tmp_path).drain()
    database.close_thread(2)
    work = database.begin(1)
    database.insert(work, 1, "a", "1.00")
    database.commit(work)
    reader.drain()
    polled = reader.poll()
    assert polled.marks[2].state is ThreadState.CLOSED
    assert reader.found == database.history
    database.add_thread(3)
    database.write_all()
    polled = reader.poll()
    assert polled.transactions == []
    assert set(polled.marks) == {1, 2, 3}
    assert polled.marks[3].order < Order(database.threads[3].enabled, 0)
    database.open_thread(2)
    for number in (1, 2, 3):
        work = database.begin(number)
        database.insert(work, 10 + number, "b", "1.00")
        database.commit(work)
    database.write_all()
    reader.drain()
    assert in_order(reader.found) == database.history


def test_a_dead_instance_is_rolled_back_in_another_thread(tmp_path: Path) -> None:
    database = SimulatedOracle(threads=2)
    reader = Reader(database, tmp_path).drain()
    dead = database.begin(2)
    database.insert(dead, 1, "lost", "1.00")
    database.insert(dead, 2, "lost", "1.00")
    database.write_all()
    reader.drain()
    database.close_thread(2)
    database.rollback(dead, thread=1)
    work = database.begin(1)
    database.insert(work, 1, "kept", "2.00")
    database.commit(work)
    reader.drain()
    assert reader.found == database.history


def test_capture_starts_at_the_oldest_open_transaction(tmp_path: Path) -> None:
    database = SimulatedOracle(threads=2)
    work = database.begin(1)
    database.insert(work, 1, "before", "1.00")
    past = database.begin(2)
    database.insert(past, 2, "past", "1.00")
    database.commit(past)
    database.switch(1)
    reader = Reader(database, tmp_path).drain()
    assert reader.found == []
    database.insert(work, 3, "after", "1.00")
    database.commit(work)
    database.write_all()
    reader.drain()
    assert reader.found == database.history[1:]
    assert len(reader.found[0][3]) == 2


def test_an_open_transaction_whose_log_is_gone_is_refused_or_left_out(tmp_path: Path) -> None:
    database = SimulatedOracle()
    work = database.begin(1)
    database.insert(work, 1, "before", "1.00")
    for _ in range(4):
        database.switch(1)
    database.gone.add((1, 2))
    with pytest.raises(StartRefusedError, match="began in logs that are gone"):
        Reader(database, tmp_path)
    reader = Reader(database, tmp_path, open_at_start="leave_out")
    assert [(thread, why[:11]) for thread, _, why in reader.poll().left_out] == [(1, "it was open")]
    database.insert(work, 2, "after", "1.00")
    other = database.begin(1)
    database.insert(other, 3, "other", "1.00")
    reader.drain()
    reader.restart()
    database.undo(work, nameless=True)
    database.commit(work)
    database.commit(other)
    reader.drain()
    assert reader.found == database.history[1:]


@pytest.mark.parametrize("nameless", [True, False])
def test_what_is_rolled_back_for_a_dead_instance_is_passed_over(tmp_path: Path, nameless: bool) -> None:
    database = SimulatedOracle(threads=2)
    lost = database.begin(2)
    database.insert(lost, 1, "lost", "1.00")
    database.close_thread(2)
    # no instance has it any more; another one takes it back, in its own thread
    database.dead = [lost.xid]
    del database.open[lost.xid]
    database.write_all()
    reader = Reader(database, tmp_path).drain()
    reader.restart()
    database.undo(lost, thread=1, nameless=nameless)
    database.tick()
    database.put(lost, 36, "rollback", thread=1)
    work = database.begin(1)
    database.insert(work, 2, "after", "1.00")
    database.commit(work)
    reader.drain()
    assert reader.found == database.history
    assert reader.stream.poll(frozenset()).left_out == []


def test_one_that_is_in_doubt_may_commit_and_its_begin_is_not_known(tmp_path: Path) -> None:
    database = SimulatedOracle()
    database.in_doubt = [(4, 5, 6)]
    with pytest.raises(StartRefusedError, match="which began at SCN unknown"):
        Reader(database, tmp_path)
    reader = Reader(database, tmp_path, open_at_start="leave_out")
    assert [thread for thread, _, _ in reader.poll().left_out] == [0]


def test_undo_without_a_sequence_finds_the_transaction_of_its_slot(tmp_path: Path) -> None:
    database = SimulatedOracle()
    reader = Reader(database, tmp_path).drain()
    work = database.begin(1)
    for number in range(6):
        database.insert(work, number, "x" * 100, "1.00")
    database.write_all()
    reader.drain()
    database.undo(work, 5, nameless=True)
    database.commit(work)
    reader.drain()
    assert reader.found == database.history
    assert len(reader.found[0][3]) == 1


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    database = SimulatedOracle(threads=2)
    reader = Reader(database, tmp_path).drain()
    for _ in range(4):
        work = database.begin(2)
        database.insert(work, database.scn, "a", "1.00")
        database.commit(work)
        database.switch(2)
    database.gone.add((2, 2))
    database.write_all()
    with pytest.raises(LogGapError, match="log 2 of thread 2") as caught:
        reader.drain()
    assert (caught.value.source, caught.value.thread) == (SOURCE, 2)
    assert "RESTORE ARCHIVELOG SEQUENCE 2 THREAD 2" in str(caught.value)


def test_another_incarnation_stops_it(tmp_path: Path) -> None:
    database = SimulatedOracle()
    reader = Reader(database, tmp_path).drain()
    database.resetlogs_id += 1
    with pytest.raises(IncarnationError):
        reader.drain()
    with pytest.raises(IncarnationError):
        reader.restart()


def test_a_lost_thread_stops_it_unless_it_was_closed(tmp_path: Path) -> None:
    database = SimulatedOracle(threads=3)
    reader = Reader(database, tmp_path).drain()
    database.close_thread(3)
    for _ in range(2):
        database.write_all()
        reader.drain()
    del database.threads[3]
    database.write_all()
    reader.drain()
    reader.restart()
    assert reader.drain().poll().marks[3].state is ThreadState.CLOSED
    del database.threads[2]
    with pytest.raises(IncarnationError, match=r"\[2\]"):
        reader.drain()


def test_statements_that_go_on_in_the_next_row(tmp_path: Path) -> None:
    database = SimulatedOracle()
    reader = Reader(database, tmp_path).drain()
    work = database.begin(1)
    database.insert(work, 1, "'" * 9_000, "1.00")
    database.commit(work)
    reader.drain()
    assert reader.found == database.history


class Workload:
    """Random transactions on all threads; each instance writes when it likes."""

    def __init__(self, database: SimulatedOracle, random_: random.Random) -> None:
        self.database = database
        self.random = random_
        self.rows: dict[int, tuple[str | None, str]] = {}
        self.busy: set[int] = set()
        self.open: list[OpenWork] = []
        self.touched: dict[int, list[int]] = {}
        self.next = 1

    def step(self) -> None:
        choice = self.random.random()
        threads = [n for n, t in self.database.threads.items() if t.is_open]
        if choice < 0.15 or not self.open:
            work = self.database.begin(self.random.choice(threads))
            self.open.append(work)
        elif choice < 0.65:
            self.change(self.random.choice(self.open))
        elif choice < 0.72:
            work = self.random.choice(self.open)
            if work.changes:
                nameless = self.random.random() < 0.3
                self.database.undo(work, self.random.randint(1, len(work.changes)), nameless=nameless)
        elif choice < 0.85:
            self.end(self.random.choice(self.open), rolled_back=self.random.random() < 0.2)
        elif choice < 0.95:
            self.database.write(self.random.choice(threads))
        else:
            self.database.switch(self.random.choice(threads))

    def change(self, work: OpenWork) -> None:
        mine = [row[0] for op, before, after in work.changes if op != "d" for row in [after or before] if row]
        if mine and self.random.random() < 0.5:
            number = self.random.choice(mine)
            op, _, after = [c for c in work.changes if (c[2] or c[1] or (None,))[0] == number][-1]
            if op != "d" and after is not None:
                if self.random.random() < 0.5:
                    self.database.update(work, number, after[1], after[2], f"{self.random.randint(0, 999)}.25")
                else:
                    self.database.delete(work, number, after[1], after[2])
                return
        self.next += 1
        name = self.random.choice([None, "it's", "Zoë", "x" * 40])
        self.database.insert(work, self.next, name, f"{self.next}.50")

    def end(self, work: OpenWork, *, rolled_back: bool) -> None:
        self.open.remove(work)
        if rolled_back:
            self.database.rollback(work)
        else:
            self.database.commit(work)


@pytest.mark.parametrize("seed", range(24))
def test_random_work_with_restarts_equals_the_history(seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)
    database = SimulatedOracle(threads=random_.randint(1, 4))
    reader = Reader(database, tmp_path)
    reader.poll()
    since = len(database.history)
    workload = Workload(database, random_)
    for _ in range(200):
        for _ in range(random_.randint(1, 8)):
            workload.step()
        if random_.random() < 0.8:
            reader.poll()
        if random_.random() < 0.1:
            reader.restart()
    for work in list(workload.open):
        workload.end(work, rolled_back=False)
    database.write_all()
    reader.drain()
    assert in_order(reader.found) == database.history[since:], f"seed {seed}"
    assert reader.found, "nothing was tested"
    for number in database.threads:
        mine = [each for each in reader.found if each[0] == number]
        assert mine == in_order(mine), "a thread's commits are not in order"
    reader.stream.close()
