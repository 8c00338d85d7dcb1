"""The two-phase cursor of the mode `incremental`. Decisions only, no I/O.

A table is read in the order of its cursor: a primary column, and a secondary one if several rows may have the same
primary value. A *bound* is a position in this order: the values of the cursor columns in the server's text form, stored
unchanged and compared by the server. A sync reads the rows of each table above `committed`, up to and including `next`,
and is published as one transaction. It has two phases: `next` is in the position before any row is published, and
becomes `committed` in the Kafka transaction that ends the sync. A sync that was interrupted is therefore read again
between the same bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lowwater.errors import CodecError
from lowwater.records.positions import Order
from lowwater.runtime.recovery import Saved, decide, step_of

#: texts of the primary and the secondary column; a null in the secondary is above all its values
Bound = tuple[str | None, ...]

#: after the rows whose primary column is null, before all other rows
LOWEST: Bound = ()


class Range(NamedTuple):
    """Rows above `after`, up to and including `to`. `after` None: from the beginning, including null cursors."""

    after: Bound | None
    to: Bound


@dataclass(frozen=True, slots=True)
class TableCursor:
    columns: tuple[str, ...]
    #: rows up to this bound are published; None: nothing was read yet
    committed: Bound | None = None
    #: upper bound of the open sync, if it reads this table
    next: Bound | None = None


@dataclass(frozen=True, slots=True)
class Cursors:
    """The state of this mode in a source's position."""

    #: number of the last finished sync, increased by one for each. It starts at the current time, so that numbers after
    #: a reset of the position are higher than those before it
    count: int
    tables: Mapping[str, TableCursor] = field(default_factory=dict)
    #: time of the database's state that the open sync reads
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
        """The ranges to read by table, in the order of publication, which is the same at every attempt."""
        return {n: Range(t.committed, t.next) for n, t in sorted(self.tables.items()) if t.next is not None}

    @property
    def saved(self) -> Saved[int]:
        """The open sync is a promised step: a part of it may already be published under its number."""
        return Saved(self.count, step_of(self.count + 1, *self.ranges, is_promised=True) if self.is_open else None)

    # -- decisions ---------------------------------------------------------------------------------------

    def opened(self, bounds: Mapping[str, Bound], at_us: int) -> Cursors:
        """The first phase: return the cursors with a sync open up to these bounds."""
        assert not self.is_open, "one sync at a time"
        tables = {n: replace(t, next=bounds.get(n)) for n, t in self.tables.items()}
        return Cursors(self.count, tables, at_us)

    def closed(self) -> Cursors:
        """The second phase: all rows of the sync are published, in the Kafka transaction of this position or before."""
        tables = {
            n: t if t.next is None else replace(t, committed=t.next, next=None) for n, t in self.tables.items()
        }  # fmt: skip
        return Cursors(self.count + 1, tables)

    def fitted(self, wanted: Mapping[str, tuple[str, ...]]) -> Cursors:
        """Return the cursors adapted to `wanted`, the configured cursor columns of each table.

        A table that is new or has another cursor is read from its beginning. An open sync of other tables or cursors
        cannot be finished. Its number is skipped, so that no other sync has the same number; its rows are read by the
        next sync, whether they were published or not.
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
                hint="the mode of a source cannot be changed: add a source with another name for the other mode",
            ) from error


def _bound(texts: Iterable[str | None] | None) -> Bound | None:
    return None if texts is None else tuple(texts)


class Settling:
    """Delays the bounds of cursors that are not times, before a sync reads up to them.

    A running transaction may later commit rows below a bound that was found. `seconds` after a bound was found, all
    transactions shorter than that which could write below it have ended. Times are of the database's clock.
    """

    def __init__(self, seconds: float) -> None:
        self._settle_us = int(seconds * 1e6)
        self._waiting: dict[str, tuple[int, Bound]] = {}

    def ready(self, seen: Mapping[str, Bound], at_us: int) -> dict[str, Bound]:
        """Return the bounds that were found long enough ago.

        `seen`: the cursor of the last row of each table that has rows above `committed`.
        """
        self._waiting = {table: self._waiting.get(table, (at_us, bound)) for table, bound in seen.items()}
        found = {t: bound for t, (since_us, bound) in self._waiting.items() if at_us - since_us >= self._settle_us}
        for table, bound in found.items():
            if bound == seen[table]:
                del self._waiting[table]
            else:
                self._waiting[table] = (at_us, seen[table])
        return found
