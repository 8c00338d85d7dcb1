"""Tables whose rows changed without changes in the log: returned by every poll, and stored in notes across restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping

import structlog

from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import StaleTable

_PREFIX = "stale/"
_log = structlog.get_logger()


class StaleTables:
    """Table → order and reason. Stored permanently: a copy whose `low` is below the order is never valid."""

    def __init__(self, source: str, notes: Mapping[str, bytes]) -> None:
        """`notes`: all notes of the source (`Encoders.notes`); other notes are ignored."""
        self._source = source
        self.found: dict[str, StaleTable] = {}
        for name, value in notes.items():
            if name.startswith(_PREFIX) and value:
                major, minor, *reason = json.loads(value)
                self.found[name.removeprefix(_PREFIX)] = StaleTable(Order(major, minor), reason[0] if reason else "")
        self._changed: set[str] = set()

    def add(self, table: str, order: Order, reason: str) -> None:
        """Record that a table is stale at `order`. An order at or below the recorded one is ignored."""
        known = self.found.get(table)
        if known is None or known.order < order:
            if known is None or known.reason != reason:
                # not for each order: cascading foreign keys may do it many times per second
                _log.warning("rows changed without changes in the log", source=self._source, table=table, why=reason)
            self.found[table] = StaleTable(order, reason)
            self._changed.add(table)

    def order_of(self, table: str) -> Order:
        """Return the order at which the table last became stale; the lowest order if it never did."""
        return self.found[table].order if table in self.found else ORDER_MIN

    def forget(self, table: str) -> None:
        del self.found[table]
        self._changed.add(table)

    def notes(self) -> dict[str, bytes]:
        """Return the notes that changed since the last call, for `Polled.notes`; an empty value deletes a note."""
        changed, self._changed = self._changed, set()
        return {_PREFIX + name: self._packed(name) for name in sorted(changed)}

    def _packed(self, name: str) -> bytes:
        stale = self.found.get(name)
        return b"" if stale is None else json.dumps([*stale.order, stale.reason]).encode()
