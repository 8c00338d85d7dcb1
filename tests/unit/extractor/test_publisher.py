"""Transactions into Kafka transactions, with a producer that only remembers what it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast
from zlib import crc32

import pytest

from lowwater.codec.varint import long, read_long
from lowwater.errors import MarkBrokenError, RowTooLargeError, SourceLostError
from lowwater.kafka import topics
from lowwater.records.codec import RecordCodec, decode_commit, decode_mark, record_schemas
from lowwater.records.ids import SchemaId, transaction_id
from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Abandon, Commit, InProgress, Mark, Position
from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime.config import BatchConfig
from lowwater_extractor._native.frames import Frames
from lowwater_extractor._native.slab import Slab
from lowwater_extractor.api import Frame, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.change_batch import FrameBuffer, FrameList, IteratedChanges
from lowwater_extractor.publish.publisher import Publisher
from lowwater_extractor.session.clock import SourceClock

PARTITIONS = 3
CHANGES, POSITIONS = topics.changes("rac"), topics.positions("rac")
HEADER = b"\x00\x00\x00\x27\x10"
CODEC = RecordCodec({name: SchemaId(number) for number, name in enumerate([*record_schemas(), "SchemaId"], 1)})

#: topic, partition, value
Sent = tuple[str, int, bytes]


class Broker:
    """What is committed; the open transaction of a producer that dies is gone."""

    def __init__(self) -> None:
        self.transactions: list[list[Sent]] = []
        #: of all that was produced to the changes topic: partition, key, value
        self.produced: list[tuple[int, bytes, bytes]] = []

    @property
    def changes(self) -> list[bytes]:
        return [value for transaction in self.transactions for topic, _, value in transaction if topic == CHANGES]

    @property
    def position(self) -> Position:
        values = [value for sent in self.transactions for topic, _, value in sent if topic == POSITIONS]
        return CODEC.decode(values[-1], Position)


class FakeProducer:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._open: list[Sent] | None = None
        self._flushed = 0

    def begin(self) -> None:
        assert self._open is None, "a transaction is open"
        self._open = []

    def produce(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        assert self._open is not None
        if topic == POSITIONS:
            assert self._flushed == len(self._open), "the position is produced after a flush"
        self._take(topic, key, value, partition)

    def produce_slab(self, topic: str, slab: Slab, partition: int) -> None:
        for message in slab.messages():
            self._take(topic, message["key"], message["value"], partition)

    def _take(self, topic: str, key: bytes, value: bytes, partition: int) -> None:
        assert self._open is not None
        if topic == CHANGES:
            self._broker.produced.append((partition, key, value))
        self._open.append((topic, partition, value))

    def flush(self) -> None:
        assert self._open is not None
        self._flushed = len(self._open)

    def commit(self) -> None:
        assert self._open is not None
        assert self._open[-1][0] == POSITIONS, "the position comes last"
        self._broker.transactions.append(self._open)
        self._open, self._flushed = None, 0


class FakeEncoders:
    def row_key(self, value: bytes) -> str:
        return f"BANK.T ID={value[HEADER_SIZE + 1]}"


FIRST = Position("rac", "i1", 1, 0, None, ())


def _publisher(broker: Broker, position: Position = FIRST, **batch: int) -> Publisher:
    return Publisher(
        cast(Any, FakeProducer(broker)), CODEC, cast(Any, FakeEncoders()), BatchConfig(**batch), PARTITIONS, position,
        SourceClock(position.clock_us, 5_000_000),
    )  # fmt: skip


def _transaction(scn: int, count: int = 2, *, thread: int = 1, text: str = "row") -> SourceTransaction:
    changes = [(HEADER, f"{text}-{scn}-{number}".encode()) for number in range(count)]
    size = sum(len(h) + len(b) for h, b in changes)
    return SourceTransaction(thread, f"t{scn}", Order(scn, 1), scn * 1000, FrameList(changes), size, count)


def _packed(transaction: SourceTransaction) -> SourceTransaction:
    """The same, with its changes in one memory."""
    frames = Frames()
    for frame in transaction.changes:
        frames.append(frame)
    return replace(transaction, changes=FrameBuffer(frames))


def _mark(scn: int, thread: int = 1, resume: bytes = b"here") -> ThreadMark:
    return ThreadMark(thread, Order.mark(scn), resume, ThreadState.OPEN, at_end=True)


def _commits(broker: Broker) -> list[Commit]:
    return [decode_commit(value) for value in broker.changes if CODEC.record_type(value) is Commit]


def _rows(broker: Broker) -> list[tuple[int, bytes]]:
    """All changes: seq and body."""
    return [(read_long(v, HEADER_SIZE)[0], v[HEADER_SIZE + 1 :]) for v in broker.changes if v[:HEADER_SIZE] == HEADER]


def _restarted(broker: Broker) -> Position:
    last = broker.position
    return Position(last.source, last.incarnation, last.epoch + 1, last.clock_us, last.in_progress, last.threads)


# -- a batch ---------------------------------------------------------------------------------------------


def test_a_batch_is_changes_a_commit_marks_to_every_partition_and_the_position_last() -> None:
    broker = Broker()
    publisher = _publisher(broker)
    size = publisher.add(_transaction(5), now_us=9000)
    assert broker.transactions == []
    publisher.commit({1: _mark(7)}, all_at_end=True, now_us=9000)
    (sent,) = broker.transactions
    kinds = [CODEC.record_type(value) for _, _, value in sent]
    assert kinds == [None, None, Commit, Mark, Mark, Mark, Position]
    assert len({partition for topic, partition, _ in sent[:3]}) == 1, "a transaction is in one partition"
    assert [partition for _, partition, _ in sent[3:6]] == [0, 1, 2]
    assert size == sum(len(value) for _, _, value in sent[:3])
    values = [value for _, _, value in sent[:2]]
    assert _rows(broker) == [(1, b"row-5-0"), (2, b"row-5-1")]
    (commit,) = _commits(broker)
    assert (commit.source, commit.thread, commit.txid, commit.order) == ("rac", 1, "t5", Order(5, 1))
    assert (commit.changes, commit.checksum, commit.clock_us) == (2, sum(map(crc32, values)), 5000)
    mark = decode_mark(sent[3][2])
    assert [(t.thread, t.order, t.state) for t in mark.threads] == [(1, Order.mark(7), "open")]
    assert (mark.epoch, mark.clock_us) == (1, 9000)
    (thread,) = broker.position.threads
    assert (thread.resume, thread.published, thread.mark) == (b"here", Order(5, 1), Order.mark(7))
    assert broker.position.clock_us == 9000


def test_nothing_is_published_twice() -> None:
    broker = Broker()
    publisher = _publisher(broker)
    assert publisher.add(_transaction(5), 9000) > 0
    assert publisher.add(_transaction(5), 9000) == 0
    publisher.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    again = _publisher(broker, _restarted(broker))
    assert again.add(_transaction(4), 9000) == 0
    assert again.add(_transaction(5), 9000) == 0
    assert again.add(_transaction(6), 9000) > 0
    again.commit({1: _mark(6)}, all_at_end=False, now_us=9000)
    assert [c.txid for c in _commits(broker)] == ["t5", "t6"]


def test_threads_are_passed_over_each_by_its_own_order() -> None:
    broker = Broker()
    publisher = _publisher(broker)
    publisher.add(_transaction(9, thread=1), 9000)
    publisher.commit({1: _mark(9), 2: _mark(3, thread=2)}, all_at_end=False, now_us=9000)
    assert publisher.add(_transaction(4, thread=2), 9000) > 0


def test_a_transaction_at_or_below_its_threads_mark_stops_the_source() -> None:
    publisher = _publisher(Broker())
    publisher.commit({1: _mark(7)}, all_at_end=True, now_us=9000)
    with pytest.raises(MarkBrokenError, match=r"t7 committed at 7\.1, the mark is 7"):
        publisher.add(_transaction(7), 9000)


def test_no_mark_below_the_last_is_sent_also_after_a_restart() -> None:
    broker = Broker()
    _publisher(broker).commit({1: _mark(7)}, all_at_end=True, now_us=9000)
    again = _publisher(broker, _restarted(broker))
    again.commit({1: _mark(5, resume=b"read again")}, all_at_end=False, now_us=8000)
    mark = decode_mark(broker.changes[-1])
    assert (mark.epoch, mark.threads[0].order, mark.clock_us) == (2, Order.mark(7), 9000)
    assert broker.position.threads[0].resume == b"read again"


def test_a_thread_that_is_not_in_this_poll_stays_in_the_marks() -> None:
    broker = Broker()
    publisher = _publisher(broker)
    publisher.commit({1: _mark(7), 2: _mark(8, thread=2)}, all_at_end=True, now_us=9000)
    publisher.commit({1: _mark(9)}, all_at_end=True, now_us=9000)
    mark = decode_mark(broker.changes[-1])
    assert {t.thread: t.order for t in mark.threads} == {1: Order.mark(9), 2: Order.mark(8)}


def test_a_row_that_fits_no_message_is_refused_with_its_key() -> None:
    publisher = _publisher(Broker())
    row = (HEADER, b"x" * (topics.MESSAGE_BYTES_MAX + 1))
    large = SourceTransaction(1, "t5", Order(5, 1), 5000, FrameList([row]), len(row[1]), 1)
    with pytest.raises(RowTooLargeError, match=r"BANK\.T ID=") as refused:
        publisher.add(large, 9000)
    assert "columns.drop" in str(refused.value)
    assert len(str(refused.value)) < 500


def test_many_changes_have_one_seq_each_also_beyond_the_tables_of_small_numbers() -> None:
    broker = Broker()
    publisher = _publisher(broker)
    publisher.add(_transaction(5, count=9000), 9000)
    publisher.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    values = [v for v in broker.changes if v[:HEADER_SIZE] == HEADER]
    assert values == [HEADER + long(n + 1) + f"row-5-{n}".encode() for n in range(9000)]


def test_of_large_rows_no_more_are_taken_at_once_than_make_a_batch() -> None:
    """A transaction of any size passes through a bounded memory, also when its rows are large."""
    broker = Broker()
    publisher = _publisher(broker, bytes_max=100_000)

    class Large(IteratedChanges):
        def __iter__(self) -> Iterator[Frame]:
            for _ in range(2000):
                yield HEADER, b"x" * 10_000

    publisher.add(SourceTransaction(1, "t5", Order(5, 1), 5000, Large(), 2000 * 10_005, 2000), 9000)
    publisher.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    assert max(map(len, broker.transactions)) < 30
    assert _commits(broker)[0].changes == 2000


@pytest.mark.parametrize("fails_at", [0, 7, 15])
def test_changes_that_cannot_be_read_leave_nothing_and_are_published_later(fails_at: int) -> None:
    """They are decoded, and the database may be queried, inside the open Kafka transaction."""
    broker = Broker()
    publisher = _publisher(broker, count_max=10)
    publisher.commit({1: _mark(4)}, all_at_end=False, now_us=9000)
    whole = _transaction(5, count=25)
    failures = [SourceLostError("the database is gone")]

    class Failing(IteratedChanges):
        def __iter__(self) -> Iterator[Frame]:
            for number, frame in enumerate(whole.changes):
                if number == fails_at and failures:
                    raise failures.pop()
                yield frame

    transaction = replace(whole, changes=Failing())
    with pytest.raises(SourceLostError):
        publisher.add(transaction, 9000)
    assert not _commits(broker)
    again = _publisher(broker, _restarted(broker), count_max=10)
    again.add(transaction, 9000)
    again.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    values = [value for value in broker.changes if value[:HEADER_SIZE] == HEADER]
    assert values == [HEADER + long(n) + body for n, (_, body) in enumerate(whole.changes, 1)]
    assert [commit.changes for commit in _commits(broker)] == [25]


def _check_keys(broker: Broker) -> None:
    """All of a transaction is under its own key, in one partition, its commit at the end."""
    for txid in ("t4", "t5"):
        key = CODEC.key(transaction_id("rac", "i1", 0, 1, txid))
        ours = [(partition, value) for partition, found, value in broker.produced if found == key]
        assert len({partition for partition, _ in ours}) == 1
        kinds = [CODEC.record_type(value) for _, value in ours]
        assert kinds == [None] * (len(ours) - 1) + [Commit]
        assert decode_commit(ours[-1][1]).changes == len(ours) - 1


@pytest.mark.parametrize("batch", [{}, {"count_max": 10}, {"bytes_max": 100_000}], ids=str)
@pytest.mark.parametrize("sizes", [[], [3], [0, 7, 9], [1] * 9000, [2_000_000, 5, 3_000_000, 2_000_000], [50_000] * 60])
def test_changes_in_one_memory_are_published_as_others_are(sizes: list[int], batch: dict[str, int]) -> None:
    changes = [(HEADER, bytes([number % 251]) * size) for number, size in enumerate(sizes)]
    listed = SourceTransaction(1, "t5", Order(5, 1), 5000, FrameList(changes), sum(sizes) + 5 * len(sizes), len(sizes))
    found = []
    for transaction in (listed, _packed(listed)):
        broker = Broker()
        publisher = _publisher(broker, FIRST, **batch)
        size = publisher.add(_transaction(4), 9000)
        size += publisher.add(transaction, 9000)
        publisher.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
        found.append((broker.changes, size, publisher.changes_total, broker.position.threads, len(broker.transactions)))
        _check_keys(broker)
        assert size == sum(len(value) for _, key, value in broker.produced if key != CODEC.key("rac"))
    assert found[0] == found[1]
    # the two transactions may be in different partitions
    values = [value for value in found[1][0] if value[:HEADER_SIZE] == HEADER and b"row-4-" not in value]
    assert values == [HEADER + long(n) + body for n, (_, body) in enumerate(changes, 1)]
    assert _commits(broker)[-1].checksum == sum(map(crc32, values))


# -- larger than a batch ---------------------------------------------------------------------------------


def _half_published(broker: Broker) -> Position:
    """A transaction of 25 in batches of 10: two of them are committed, then the process dies."""
    publisher = _publisher(broker, count_max=10)
    publisher.commit({1: _mark(4)}, all_at_end=False, now_us=9000)
    publisher.add(_transaction(5, count=25), 9000)
    return _restarted(broker)


def test_a_transaction_larger_than_a_batch_spans_kafka_transactions_and_the_position_says_how_far() -> None:
    broker = Broker()
    position = _half_published(broker)
    prefix = [value for value in broker.changes if value[:HEADER_SIZE] == HEADER]
    assert len(prefix) == 20
    assert position.in_progress == InProgress(1, "t5", Order(5, 1), 1, 20, sum(map(crc32, prefix)))
    assert position.threads[0].published == ORDER_MIN, "it is not published before its commit"
    assert len(broker.transactions) == 3
    assert [CODEC.record_type(v) for v in broker.changes[3:]] == [None] * 20, "no mark inside"


@pytest.mark.parametrize("form", [lambda each: each, _packed], ids=["listed", "packed"])
def test_after_a_crash_it_goes_on_behind_the_same_prefix(
    form: Callable[[SourceTransaction], SourceTransaction],
) -> None:
    broker = Broker()
    again = _publisher(broker, _half_published(broker), count_max=10)
    again.add(form(_transaction(5, count=25)), 9000)
    again.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    assert [seq for seq, _ in _rows(broker)] == list(range(1, 26)), "each change once"
    (commit,) = _commits(broker)
    values = [value for value in broker.changes if value[:HEADER_SIZE] == HEADER]
    assert (commit.changes, commit.checksum) == (25, sum(map(crc32, values)))
    assert broker.position.in_progress is None
    assert not any(CODEC.record_type(value) is Abandon for value in broker.changes)


@pytest.mark.parametrize(
    "other", [_transaction(5, 25, text="masked"), _transaction(5, 12)], ids=["other bytes", "fewer changes"]
)
def test_a_prefix_that_differs_is_abandoned_and_it_starts_anew(other: SourceTransaction) -> None:
    broker = Broker()
    again = _publisher(broker, _half_published(broker), count_max=10)
    again.add(other, 9000)
    again.commit({1: _mark(5)}, all_at_end=False, now_us=9000)
    kinds = [CODEC.record_type(value) for value in broker.changes]
    at = kinds.index(Abandon)
    behind = [v for v in broker.changes[at:] if v[:HEADER_SIZE] == HEADER]
    assert [read_long(v, HEADER_SIZE)[0] for v in behind] == list(range(1, other.count + 1))
    (commit,) = _commits(broker)
    assert (commit.changes, commit.checksum) == (other.count, sum(map(crc32, behind)))
    assert kinds.count(Abandon) == 1


def test_one_that_never_comes_back_is_abandoned_once_the_log_is_read_past_it() -> None:
    broker = Broker()
    again = _publisher(broker, _half_published(broker), count_max=10)
    in_progress = []
    for scn in (4, 5):
        again.commit({1: _mark(scn)}, all_at_end=False, now_us=9000)
        in_progress.append(broker.position.in_progress is not None)
    assert in_progress == [True, False], "at 4 it may still come"
    assert [CODEC.record_type(v) for v in broker.transactions[-1][0][2:]] == [Abandon]


def test_another_large_one_that_comes_first_takes_its_place() -> None:
    """A source has one in progress: the first is abandoned and starts anew when it comes."""
    broker = Broker()
    again = _publisher(broker, _half_published(broker), count_max=10)
    again.commit({1: _mark(4), 2: _mark(1, thread=2)}, all_at_end=False, now_us=9000)
    again.add(_transaction(3, count=15, thread=2), 9000)
    again.add(_transaction(5, count=25), 9000)
    again.commit({1: _mark(5), 2: _mark(5, thread=2)}, all_at_end=False, now_us=9000)
    assert [(c.txid, c.changes) for c in _commits(broker)] == [("t3", 15), ("t5", 25)]
    kinds = [CODEC.record_type(value) for value in broker.changes]
    assert kinds.count(Abandon) == 1
    rows = [value for value in broker.changes[kinds.index(Abandon) :] if b"row-5-" in value]
    assert len(rows) == 25


def test_small_ones_that_come_before_it_do_not_disturb_it() -> None:
    broker = Broker()
    again = _publisher(broker, _half_published(broker), count_max=10)
    again.commit({1: _mark(4), 2: _mark(1, thread=2)}, all_at_end=False, now_us=9000)
    again.add(_transaction(3, thread=2), 9000)
    again.commit({1: _mark(4), 2: _mark(3, thread=2)}, all_at_end=False, now_us=9000)
    again.add(_transaction(5, count=25), 9000)
    again.commit({1: _mark(5), 2: _mark(3, thread=2)}, all_at_end=False, now_us=9000)
    assert [c.txid for c in _commits(broker)] == ["t3", "t5"]
    assert len([value for value in broker.changes if b"row-5-" in value]) == 25
