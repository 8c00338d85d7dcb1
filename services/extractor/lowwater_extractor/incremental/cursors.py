"""The two-phase cursor of the mode `incremental`. Decides only, does no I/O.

A table is read in the order of its cursor: a primary column, and where rows may be equal in that, a secondary one. A
*bound* is a place in this order: the columns' values as the server's text, kept as they are and compared by the server.
A sync reads the rows of each table that lie above `committed`, up to and including `next`, and is published as one
transaction. It has two phases: `next` is in the position before any row is published, and becomes `committed` in the
Kafka transaction that ends the sync. So a sync that did not come to its end is read again between the same bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lowwater.errors import CodecError
from lowwater.records.positions import Order
from lowwater.runtime.recovery import Saved, decide, step_of

#: texts of the primary and the secondary column; a null in the secondary lies above all its values
Bound = tuple[str | None, ...]

#: behind the rows whose primary column is null, before all others
LOWEST: Bound = ()


class Range(NamedTuple):
    """Rows above `after`, up to and including `to`. None: from the beginning, with the rows whose cursor is null."""

    after: Bound | None
    to: Bound


@dataclass(frozen=True, slots=True)
class TableCursor:
    columns: tuple[str, ...]
    #: everything up to here is published; None: nothing was read yet
    committed: Bound | None = None
    #: of the open sync, if that reads this table
    next: Bound | None = None


@dataclass(frozen=True, slots=True)
class Cursors:
    """What a source's position holds of this mode."""

    #: of the last sync that is over, each one more than the one before; the first is a time, so that a position that
    #: was reset goes on above it
    count: int
    tables: Mapping[str, TableCursor] = field(default_factory=dict)
    #: how far the open sync shows the database
    at_us: int = 0

    # -- the open sync -----------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return any(table.next is not None for table in self.tables.values())

    @property
    def order(self) -> Order:
        return Order(self.count + 1, 1)

    @property
    def txid(self) -> str:
        return f"sync-{self.count + 1}"

    @property
    def mark(self) -> Order:
        return Order.mark(self.count)

    @property
    def ranges(self) -> dict[str, Range]:
        """In the order in which they are published, which is the same at every attempt."""
        return {n: Range(t.committed, t.next) for n, t in sorted(self.tables.items()) if t.next is not None}

    @property
    def saved(self) -> Saved[int]:
        """The end of a sync is promised with its number: a part of it may be published under that."""
        return Saved(self.count, step_of(self.count + 1, *self.ranges, is_promised=True) if self.is_open else None)

    # -- decisions ---------------------------------------------------------------------------------------

    def opened(self, bounds: Mapping[str, Bound], at_us: int) -> Cursors:
        """The first phase: a sync up to these bounds."""
        assert not self.is_open, "one sync at a time"
        tables = {n: replace(t, next=bounds.get(n)) for n, t in self.tables.items()}
        return Cursors(self.count, tables, at_us)

    def closed(self) -> Cursors:
        """The second phase: all of it is published, in the Kafka transaction that has this position or before it."""
        tables = {
            n: t if t.next is None else replace(t, committed=t.next, next=None) for n, t in self.tables.items()
        }  # fmt: skip
        return Cursors(self.count + 1, tables)

    def fitted(self, wanted: Mapping[str, tuple[str, ...]]) -> Cursors:
        """To the columns by which the config wants each table read. One that is new, or has another cursor, is read
        from its beginning.

        A sync that was open for other tables or cursors than these cannot be finished. Its number is used up, so that
        nothing else is taken for it: whether it was published or not, its rows come in the next one.
        """
        kept = {n: t for n, t in self.tables.items() if wanted.get(n) == t.columns}
        tables = {n: kept.get(n, TableCursor(columns)) for n, columns in wanted.items()}
        if not decide(self.saved, frozenset(), kept.keys()).gone:
            return replace(self, tables=tables)
        return Cursors(self.count + 1, {n: replace(t, next=None) for n, t in tables.items()})

    # -- in a position -----------------------------------------------------------------------------------

    def pack(self) -> bytes:
        tables = {
            name: {"cursor": t.columns}
            | ({} if t.committed is None else {"committed": t.committed})
            | ({} if t.next is None else {"next": t.next})
            for name, t in sorted(self.tables.items())
        }
        return json.dumps({"count": self.count, "at_us": self.at_us, "tables": tables}, ensure_ascii=False).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Cursors:
        try:
            found: dict[str, Any] = json.loads(data)
            tables = {
                name: TableCursor(tuple(t["cursor"]), _bound(t.get("committed")), _bound(t.get("next")))
                for name, t in found["tables"].items()
            }
            return cls(int(found["count"]), tables, int(found["at_us"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CodecError(
                "the position is not one of the mode `incremental`",
                hint="a source keeps its mode: give the other mode a source of its own, under another name",
            ) from error


def _bound(texts: Iterable[str | None] | None) -> Bound | None:
    return None if texts is None else tuple(texts)


class Settling:
    """For cursors that do not tell the time: a bound waits before it is read up to.

    A transaction that is still running may commit rows below a bound that is seen already. A bound that has been seen
    `seconds` ago has been passed by all transactions that take less than that. Times are the database's own.
    """

    def __init__(self, seconds: float) -> None:
        self._settle_us = int(seconds * 1e6)
        self._waiting: dict[str, tuple[int, Bound]] = {}

    def ready(self, seen: Mapping[str, Bound], at_us: int) -> dict[str, Bound]:
        """Those that have waited long enough. `seen`: the last row of each table that has rows above `committed`."""
        self._waiting = {table: self._waiting.get(table, (at_us, bound)) for table, bound in seen.items()}
        found = {t: bound for t, (since_us, bound) in self._waiting.items() if at_us - since_us >= self._settle_us}
        for table, bound in found.items():
            if bound == seen[table]:
                del self._waiting[table]
            else:
                self._waiting[table] = (at_us, seen[table])
        return found
