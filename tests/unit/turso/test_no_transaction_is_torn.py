"""However a log is looked at, in whatever pieces and with whatever restarts: each transaction whole, in order, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.kit import Encoders, read
from tests.unit.turso.records import record

from lowwater_extractor.sources.turso.assemble import Assembler, LogRow, cuts_behind
from lowwater_extractor.sources.turso.captured import CapturedMaker
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.definitions import Definitions
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
#: how many transactions more are visible at a look, how many rows it takes at most, and the crash that follows, if any:
#: behind the position that the look ends with, or once so many of its transactions were published, before it
looks = st.tuples(st.integers(0, 4), st.integers(1, 12), st.none() | st.just("behind") | st.integers(0, 4))


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
        self.found: list[tuple[int, list[int]]] = []
        #: what is durable: the position, the last transaction that was published, and where polls ended
        self._position = self._published = 0
        self._cuts: list[int] = []
        self._open()

    def _open(self) -> None:
        tables = Tables(CONFIG, "s", DEFINITIONS, CapturedMaker(CONFIG, "s", self._encoders))
        tables.begin({"t": T}, 0)
        self._assembler = Assembler(CONFIG, "s", tables, SpillSpace(), self._position, dict, self._cuts)

    def look(self, visible: list[LogRow], limit: int, crash: str | int | None) -> None:
        rows = visible[self._assembler.read_to :]
        self._assembler.feed(rows[:limit])
        if limit > len(rows):
            self._assembler.settle()
        found, self._assembler.committed = self._assembler.committed, []
        cuts = cuts_behind(self._cuts, self._position, self._assembler.end)
        for transaction in found[: crash if isinstance(crash, int) else None]:
            self._cuts = cuts
            if transaction.order.major > self._published:
                keys = [change.after[0] for change in read(transaction, self._encoders).changes if change.after]
                self.found.append((transaction.order.major, keys))
                self._published = transaction.order.major
        if not isinstance(crash, int):
            self._position = self._assembler.end
        if crash is not None:
            self._open()


@settings(deadline=None, max_examples=300)
@given(st.lists(transactions, max_size=12), st.lists(looks, max_size=25))
def test_each_transaction_is_whole_in_order_and_once(
    written: list[Transaction], asked: list[tuple[int, int, str | int | None]]
) -> None:
    log = list(_log(written))
    reader, seen = Reader(), 0
    for more, limit, crash in [*asked, (len(log), 1_000, None), (0, 1_000, None)]:
        seen = min(len(log), seen + more)
        reader.look([row for rows, _ in log[:seen] for row in rows], limit, crash)
    keys = [key for _, found in reader.found for key in found]
    assert keys == [key for _, inserted in log for key in inserted], "all, in order, once"
    orders = [order for order, _ in reader.found]
    assert orders == sorted(set(orders))
    for _, inserted in log:
        holders = {order for order, found in reader.found if set(inserted) & set(found)}
        assert len(holders) == (1 if inserted else 0), "torn"
