"""A model of the extractor: reads a database's threads at its own pace and writes their topic.

It keeps the rules of the design's section 5, starts from scratch on another database when the source is reset, and goes
wrong in the ways in which a real one may: it is killed and starts again under the next epoch, and a Kafka transaction's
delayed end lets a part of a batch be seen that is then published once more, with other clocks and lower marks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from tests.simulation.database import STEP_US, Database, Thread, Transaction
from tests.simulation.topic import CODEC, Topic, change_value, checksum

from lowwater.records.positions import Order
from lowwater.records.types import Abandon, Commit, Mark, MarkedThread

CLOCK_AHEAD_MAX_US = 400
#: a transaction of more changes than this spans several batches
BATCH_CHANGES_MAX = 4


@dataclass(slots=True)
class InProgress:
    transaction: Transaction
    published: int
    version: int


@dataclass(slots=True)
class Position:
    """What the extractor keeps in Kafka, written with each batch."""

    clock_us: int = 0
    #: per thread: how much of its log has been read
    read: dict[int, int] = field(default_factory=dict)
    marks: dict[int, Order] = field(default_factory=dict)
    in_progress: InProgress | None = None

    def copy(self) -> Position:
        unfinished = self.in_progress and replace(self.in_progress)
        return Position(self.clock_us, dict(self.read), dict(self.marks), unfinished)


@dataclass(frozen=True, slots=True)
class Published:
    key: bytes
    value: bytes
    commit: Commit | None = None


def values_of(transaction: Transaction) -> list[bytes]:
    """The changes as the database made them, in the extractor's encoding."""
    name = f"{transaction.key}/{transaction.version}"
    return [change_value(n + 1, f"{name}/{n}" + "x" * (n * 7 % 50)) for n in range(transaction.changes)]


class Extractor:
    def __init__(self, rng: Random, database: Database, topic: Topic, *, lwn_scn_is_mark: bool = False) -> None:
        self.rng = rng
        self.database = database
        self.topic = topic
        self.epoch = 1
        self.generation = 0
        self.at = 0
        self.now_us = 0
        self.position = Position()
        #: the highest clock ever sent, whoever knows of it
        self.clock_max_us = 0
        self._commits_seen: set[bytes] = set()
        self._batch: list[Published] = []
        self._lwn_step = 0 if lwn_scn_is_mark else 1

    def reset(self, database: Database, generation: int) -> None:
        """The source was reset: what is in progress is abandoned, and capture starts from scratch on this database."""
        unfinished = self.position.in_progress
        if unfinished is not None and unfinished.published:
            key = CODEC.key(unfinished.transaction.key)
            abandon = CODEC.encode(Abandon(unfinished.transaction.txid, 1))
            self.topic.append(self.topic.partition_of(key), key, abandon)
            self.topic.end_transaction()
        self.database = database
        self.generation = generation
        self.epoch += 1
        self.at = 0
        self.position = Position(clock_us=self.position.clock_us)

    def run(self, batches_max: int = 1_000_000) -> None:
        """Publish all that the database has, to the last mark; or as much of it as so many batches hold."""
        self._find_threads()
        self._publish(cut=False)
        while not self._is_done():
            batches_max -= 1
            if batches_max < 0:
                return
            before, is_cut = self.position.copy(), self.rng.random() < 0.15
            self._make_batch()
            self._publish(cut=is_cut)
            if is_cut:
                # its end was never told to us, so the position is the one before
                self.position = before
            if is_cut or self.rng.random() < 0.05:
                self._restart()

    def _is_done(self) -> bool:
        threads = self.database.threads
        found_all = len(self.position.marks) == len(threads) and self.at == self.database.end
        read_all = all(self.position.read.get(t.number) == len(t.log) for t in threads)
        return found_all and read_all and self.position.in_progress is None

    def _restart(self) -> None:
        self.epoch += 1
        unfinished = self.position.in_progress
        if unfinished is not None and self.rng.random() < 0.4:
            transaction = unfinished.transaction
            # other bytes for what somebody may have seen whole would be a contradiction, not a repeat
            if CODEC.key(transaction.key) not in self._commits_seen:
                transaction.version += 1

    # -- one batch ---------------------------------------------------------------------------------------

    def _make_batch(self) -> None:
        rng = self.rng
        self.at = min(self.database.end, self.at + rng.choice((0, 1, 1, 2, 4)))
        self.now_us = max(self.now_us, 1_000 + self.at * STEP_US) + rng.randint(0, 30)
        # the look comes before the reading, so that no mark passes a thread that is not found yet
        readable = [t for t in self.database.threads if t.number in self.position.marks]
        self._find_threads()
        blocked: set[int] = set()
        self._go_on(blocked)
        left = 10_000 if self.database.in_step else rng.choice((0, 1, 3, 8, 20))
        while left and (threads := [t for t in readable if t.number not in blocked and self._next_of(t)]):
            self._read(rng.choice(threads), blocked)
            left -= 1
        for thread in readable:
            self._look_at_closed(thread)
        if self.position.in_progress is None and not any(self._next_of(t) for t in readable):
            self.position.clock_us = max(self.position.clock_us, self.now_us)

    def _find_threads(self) -> None:
        for thread in self.database.threads:
            turn = thread.turn_at(self.at)
            if turn is not None and thread.number not in self.position.marks:
                first_scn = thread.turns[0][1]
                assert first_scn is not None
                self.position.marks[thread.number] = Order.mark(first_scn - 1)
                self.position.read[thread.number] = 0

    def _next_of(self, thread: Thread) -> bool:
        number = self.position.read[thread.number]
        return number < len(thread.log) and thread.log[number].at <= self.at

    def _read(self, thread: Thread, blocked: set[int]) -> None:
        entry = thread.log[self.position.read[thread.number]]
        transaction = entry.transaction
        if transaction is None:
            self._raise_mark(thread.number, Order.mark(entry.scn - self._lwn_step))
        elif transaction.changes <= BATCH_CHANGES_MAX:
            self._send(transaction, 0, transaction.changes)
        else:
            blocked.add(thread.number)
            if self.position.in_progress is None:
                self.position.in_progress = InProgress(transaction, 0, transaction.version)
                self._go_on(blocked)
            return
        self.position.read[thread.number] += 1

    def _go_on(self, blocked: set[int]) -> None:
        """The next part of the one transaction that is larger than a batch."""
        unfinished = self.position.in_progress
        if unfinished is None:
            return
        transaction = unfinished.transaction
        blocked.add(transaction.thread)
        if unfinished.version != transaction.version:
            self._append(transaction, CODEC.encode(Abandon(transaction.txid, transaction.version)))
            unfinished.version, unfinished.published = transaction.version, 0
        end = min(transaction.changes, unfinished.published + self.rng.randint(1, BATCH_CHANGES_MAX))
        self._send(transaction, unfinished.published, end)
        unfinished.published = end
        if end == transaction.changes:
            self.position.in_progress = None
            self.position.read[transaction.thread] += 1

    def _look_at_closed(self, thread: Thread) -> None:
        turn = thread.turn_at(self.at)
        working = self.position.in_progress
        is_busy = working is not None and working.transaction.thread == thread.number
        if turn is not None and turn[1] is None and not self._next_of(thread) and not is_busy:
            self._raise_mark(thread.number, Order.mark(self.database.scns[self.at]))

    def _raise_mark(self, thread: int, mark: Order) -> None:
        self.position.marks[thread] = max(self.position.marks[thread], mark)

    # -- records -----------------------------------------------------------------------------------------

    def _append(self, transaction: Transaction, value: bytes, commit: Commit | None = None) -> None:
        self._batch.append(Published(CODEC.key(transaction.key), value, commit))

    def _send(self, transaction: Transaction, start: int, end: int) -> None:
        values = values_of(transaction)
        for number in range(start, end):
            is_last = number == transaction.changes - 1
            if transaction.damage == "altered" and is_last:
                self._append(transaction, change_value(number + 1, "other bytes"))
            elif transaction.damage != "missing" or not is_last:
                self._append(transaction, values[number])
        if end == transaction.changes:
            self._commit(transaction, values)

    def _commit(self, transaction: Transaction, values: list[bytes]) -> None:
        wanted = min(transaction.commit_ts_us, self.now_us + CLOCK_AHEAD_MAX_US)
        self.position.clock_us = max(wanted, self.position.clock_us + 1)
        commit = Commit(
            source=transaction.source,
            thread=transaction.thread,
            txid=transaction.txid,
            order=transaction.order,
            commit_ts_us=transaction.commit_ts_us,
            clock_us=self.position.clock_us,
            changes=len(values),
            checksum=checksum(values),
            generation=self.generation,
        )
        self._append(transaction, CODEC.encode(commit), commit)

    def _mark(self) -> Mark:
        self.clock_max_us = max(self.clock_max_us, self.position.clock_us)
        threads = [
            MarkedThread(thread.number, self.position.marks[thread.number], self._state_of(thread))
            for thread in self.database.threads
            if thread.number in self.position.marks
        ]
        return Mark(self.epoch, self.position.clock_us, tuple(threads), self.generation)

    def _state_of(self, thread: Thread) -> str:
        turn = thread.turn_at(self.at)
        return "closed" if turn is not None and turn[1] is None else "open"

    def _publish(self, *, cut: bool) -> None:
        """One Kafka transaction; when cut, only so much of each partition as its delayed end happens to cover."""
        batch, self._batch = self._batch, []
        if self.rng.random() < 0.5:
            batch.sort(key=lambda published: published.commit is not None)
        mark = self._mark()
        for number in range(len(self.topic.partitions)):
            records = [p for p in batch if self.topic.partition_of(p.key) == number]
            seen = self.rng.randint(0, len(records) + 1) if cut else len(records) + 1
            for published in records[:seen]:
                self.topic.append(number, published.key, published.value, published.commit)
                if published.commit is not None:
                    self._commits_seen.add(published.key)
            if seen > len(records):
                self.topic.append(number, CODEC.key(self.topic.source), CODEC.encode(mark), mark)
        self.topic.end_transaction()

    def finish(self) -> None:
        """Idle marks that pass all there is; only a thread whose instance fell silent stays where it was."""
        for thread in self.database.threads:
            if not thread.is_silent:
                self._raise_mark(thread.number, Order.mark(self.database.scns[-1] + 5))
        self.position.clock_us = max(self.position.clock_us, self.clock_max_us) + 1_000_000
        self._publish(cut=False)
