"""However a log is looked at, in whatever pieces and with whatever restarts: each transaction whole, in order, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.kit import Encoders, read
from tests.unit.turso.records import record

from lowwater_extractor.sources.turso.assembler import Assembler, LogRow, cuts_behind
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import CapturedMaker
from lowwater_extractor.sources.turso.schema.definitions import Definitions
from lowwater_extractor.sources.turso.tables import Tables
from lowwater_extractor.spill import SpillSpace

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)"
CONFIG = TursoConfig(path=Path("x.db"), tables=["main.t"], spill_bytes_max=300)
DEFINITIONS = Definitions("s", {})


@dataclass(frozen=True)
class Transaction:
    """As Turso writes it: pieces with a COMMIT behind each; all but the last one are a trigger's."""

    pieces: tuple[int, ...]
    #: it carries the id of the one before it, as one does behind a checkpoint
    takes_old_id: bool
    #: it changed nothing
    is_empty: bool


transactions = st.builds(
    Transaction, st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple), st.booleans(), st.booleans()
)


@dataclass(frozen=True)
class Look:
    #: so many transactions more are visible, and so many rows are taken at most
    more: int
    rows: int
    #: a Kafka transaction ends behind so many of those that were found, or behind the poll; None: it goes on
    commit: int | None = None
    #: it has the beginning of a large one: its position is the last one in Kafka, not that of the poll before
    is_prefix: bool = False
    is_crash: bool = False


looks = st.builds(
    Look, st.integers(0, 4), st.integers(1, 12), st.none() | st.integers(0, 5), st.booleans(), st.booleans()
)


@dataclass
class Kafka:
    """What is durable: the position, what was published, and where polls ended."""

    position: int = 0
    cuts: tuple[int, ...] = ()
    found: tuple[tuple[int, list[int]], ...] = ()


def _log(written: list[Transaction]) -> Iterator[tuple[list[LogRow], list[int]]]:
    """For each: its rows, and the keys that it inserts."""
    last, key, txn = 0, 0, -1
    for transaction in written:
        rows: list[LogRow] = []
        keys: list[int] = []
        txn = txn if transaction.takes_old_id and txn > 0 else last + 1
        if transaction.is_empty:
            last += 1
            rows.append((last, 5, -1, 2, None, None, None, None, None))  # type: ignore[arg-type]
        else:
            for count in transaction.pieces:
                for _ in range(count):
                    last, key = last + 1, key + 1
                    rows.append((last, 5, txn, 1, "t", key, None, record(key, "x"), None))
                    keys.append(key)
                last += 1
                rows.append((last, 5, txn, 2, None, None, None, None, None))  # type: ignore[arg-type]
        yield rows, keys


class Reader:
    """As the stream feeds its assembler, and as the runtime publishes what it gives."""

    def __init__(self) -> None:
        self._encoders = Encoders()
        self.kafka = Kafka()
        self._open()

    def _open(self) -> None:
        tables = Tables(CONFIG, "s", DEFINITIONS, CapturedMaker(CONFIG, "s", self._encoders))
        tables.begin({"t": T}, 0)
        #: of this session, of which not all is durable
        self._found, self._cuts = list(self.kafka.found), list(self.kafka.cuts)
        self._acknowledged = self._polled = self.kafka.position
        self._assembler = Assembler(CONFIG, "s", tables, SpillSpace(), self._polled, lambda _: ({}, {}), self._cuts)

    def look(self, visible: list[LogRow], look: Look) -> None:
        assembler = self._assembler
        rows = visible[assembler.read_to :]
        assembler.feed(rows[: look.rows])
        if look.rows > len(rows):
            assembler.settle()
        found, assembler.committed = assembler.committed, []
        if found:
            self._cuts = cuts_behind(self._cuts, self._acknowledged, assembler.end)
        for number, transaction in enumerate(found):
            if number == look.commit:
                self._commit(self.kafka.position if look.is_prefix else self._polled)
            published = self._found[-1][0] if self._found else 0
            if transaction.order.major > published:
                keys = [change.after[0] for change in read(transaction, self._encoders).changes if change.after]
                self._found.append((transaction.order.major, keys))
        self._polled = assembler.end
        if look.commit is not None and look.commit >= len(found):
            self._commit(self._polled)
        if look.is_crash:
            self._open()

    def _commit(self, position: int) -> None:
        self.kafka = Kafka(position, tuple(self._cuts), tuple(self._found))
        self._acknowledged = position


@settings(deadline=None, max_examples=300)
@given(st.lists(transactions, max_size=12), st.lists(looks, max_size=25))
def test_each_transaction_is_whole_in_order_and_once(written: list[Transaction], asked: list[Look]) -> None:
    log = list(_log(written))
    reader, seen = Reader(), 0
    for look in [*asked, Look(len(log), 1_000, 1_000), Look(0, 1_000, 1_000)]:
        seen = min(len(log), seen + look.more)
        reader.look([row for rows, _ in log[:seen] for row in rows], look)
    found = reader.kafka.found
    keys = [key for _, some in found for key in some]
    assert keys == [key for _, inserted in log for key in inserted], "all, in order, once"
    orders = [order for order, _ in found]
    assert orders == sorted(set(orders))
    for _, inserted in log:
        holders = {order for order, some in found if set(inserted) & set(some)}
        assert len(holders) == (1 if inserted else 0), "torn"
