"""XA transactions: their rows are in the log at XA PREPARE, and are held back until XA COMMIT or XA ROLLBACK.

Held rows are durable only in the server's log. Therefore the stored position also contains the position before the
oldest open XA PREPARE. After a restart the log is read from there, and groups before the position itself are used only
for XA transactions.

A server may end an XA transaction without a log entry: `XA COMMIT … ONE PHASE` of a transaction that another session
prepared (seen on MySQL 9.7). Held transactions are therefore compared with those that the server lists as prepared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lowwater.errors import LogGapError
from lowwater_extractor.sources.mysql.ddl.effects import AlteredNames
from lowwater_extractor.sources.mysql.ddl.statements import Xid
from lowwater_extractor.sources.mysql.event_group import Group
from lowwater_extractor.sources.mysql.position import Place

_ALTERED = "it was altered while an XA transaction with changes of it was prepared"


@dataclass(frozen=True, slots=True)
class _Held:
    group: Group
    #: position before the group of its XA PREPARE
    place: Place
    #: tables that may hold its rows, and that were altered since XA PREPARE; captured or not
    altered: set[str] = field(default_factory=set)

    def add(self, statement: AlteredNames) -> None:
        # stale: children of foreign keys whose rows it changes
        tables = self.group.tables | self.group.stale.keys() | self.altered
        self.altered.update(table for table in tables if table.partition(".")[0] in statement.databases)
        for old, new in statement.tables:
            self.altered.update(tables & {old, new})
            if new and old in tables | self.altered:
                # a table that is renamed takes the rows along
                self.altered.add(new)


class HeldTransactions:
    def __init__(self, source: str, is_captured: Callable[[str], bool], *, leaves_out: bool) -> None:
        self._source = source
        self._is_captured = is_captured
        self._leaves_out = leaves_out
        #: in order of XA PREPARE
        self._held: dict[Any, _Held] = {}

    @property
    def xids(self) -> frozenset[Any]:
        return frozenset(self._held)

    def take(self, xid: object) -> Group:
        """Return the changes of a held transaction that has ended, with the tables that they make stale."""
        held = self._held.pop(xid)
        held.group.stale |= dict.fromkeys(filter(self._is_captured, held.altered), _ALTERED)
        return held.group

    def hold(self, xid: object, group: Group, place: Place) -> None:
        self._held[xid] = _Held(group, place)

    def altered(self, statement: AlteredNames) -> None:
        """Mark tables of held transactions that a statement has altered, emptied, dropped or renamed meanwhile.

        Some servers (seen on MySQL 8.0.12) do not keep the metadata locks
        of a prepared transaction whose session has ended. Then its rows may belong to a table that is gone, have other
        columns, or be in the table under its new name, which is marked, too.
        """
        for held in self._held.values():
            held.add(statement)

    def end(self, xid: object, group: Group, *, is_commit: bool) -> tuple[Group | None, str]:
        """Return the group with the changes that XA COMMIT commits (None: none), and why changes are left out.

        Raises LogGapError if the transaction was prepared before capture started, unless configured to leave it out.
        """
        if xid in self._held:
            held = self.take(xid)
            return (group.with_changes(held) if is_commit else None), ""
        if group.is_covered or not is_commit:
            return None, ""
        if self._leaves_out:
            return None, f"XA {xid} was prepared before capture began"
        raise LogGapError(
            f"XA COMMIT {xid}, whose changes were written to the log before capture began",
            source=self._source, thread=1, position=group.gtid or None,
            hint="reset the source's position to start capture again; or set xa_at_start: leave_out",
        )  # fmt: skip

    def open(self) -> tuple[tuple[str, ...], Place | None]:
        """Return the names of the open transactions, and the position to read again from."""
        if not self._held:
            return (), None
        return tuple(map(str, self._held)), next(iter(self._held.values())).place

    def check_all_there(self, wanted: tuple[str, ...]) -> None:
        """After a restart, raise if a transaction that was held before was not found again."""
        if missing := set(wanted) - set(map(str, self._held)):
            raise LogGapError(
                f"XA {', '.join(sorted(missing))}: prepared before the restart, and not found in the log again",
                source=self._source, thread=1,
                hint="was the log purged? reset the source's position, its tables are copied again",
            )  # fmt: skip


class EndedWithoutLog:
    """Finds held transactions that the server has ended without a log entry. Does no I/O."""

    def __init__(self) -> None:
        self._missing: frozenset[Xid] = frozenset()
        self._log_end: Place | None = None

    def ask(self, missing: frozenset[Xid], log_end: Place) -> None:
        """`missing`: held transactions that the server no longer has; `log_end`: the log's end after that query."""
        if self._log_end is None:
            self._missing, self._log_end = missing, log_end

    def found(self, held: frozenset[Xid], has_passed: Callable[[Place], bool]) -> frozenset[Xid]:
        """Return the missing ones whose end is not in the log before `log_end`; none until the log was read so far.

        `has_passed`: whether the log was read up to a position.
        """
        if self._log_end is None or not has_passed(self._log_end):
            return frozenset()
        self._log_end = None
        return self._missing & held
