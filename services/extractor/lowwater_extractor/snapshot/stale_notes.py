"""What a source kind knows of tables that its log falls silent about: named by every poll, remembered over restarts."""

from __future__ import annotations

import json
from collections.abc import Mapping

import structlog

from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import StaleTable

_PREFIX = "stale/"
_log = structlog.get_logger()


class StaleTables:
    """Table → where and why. Kept for good: a copy whose `low` is below it is never right, also after a restart."""

    def __init__(self, source: str, notes: Mapping[str, bytes]) -> None:
        """`notes`: of the source, as `Encoders.notes` has them; others than ours are passed over."""
        self._source = source
        self.found: dict[str, StaleTable] = {}
        for name, value in notes.items():
            if name.startswith(_PREFIX) and value:
                major, minor, *reason = json.loads(value)
                self.found[name.removeprefix(_PREFIX)] = StaleTable(Order(major, minor), reason[0] if reason else "")
        self._changed: set[str] = set()

    def add(self, table: str, order: Order, reason: str) -> None:
        """Orders only rise: what was not known before is not known by another statement either."""
        known = self.found.get(table)
        if known is None or known.order < order:
            if known is None or known.reason != reason:
                # foreign keys may do it many times a second
                _log.warning("rows changed without changes in the log", source=self._source, table=table, why=reason)
            self.found[table] = StaleTable(order, reason)
            self._changed.add(table)

    def order_of(self, table: str) -> Order:
        """Where it became stale last; below everything if it never did."""
        return self.found[table].order if table in self.found else ORDER_MIN

    def forget(self, table: str) -> None:
        del self.found[table]
        self._changed.add(table)

    def notes(self) -> dict[str, bytes]:
        """For `Polled.notes`: what is to be remembered, or no more, and was not yet."""
        changed, self._changed = self._changed, set()
        return {_PREFIX + name: self._packed(name) for name in sorted(changed)}

    def _packed(self, name: str) -> bytes:
        stale = self.found.get(name)
        return b"" if stale is None else json.dumps([*stale.order, stale.reason]).encode()
