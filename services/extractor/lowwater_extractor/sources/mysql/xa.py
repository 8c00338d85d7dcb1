"""XA transactions: their rows lie in the log at XA PREPARE, and are held until XA COMMIT or XA ROLLBACK.

Held rows are not durable anywhere but in the server's log. So the position keeps, beside the place to go on from, the
place to go back to: in front of the oldest XA PREPARE that is still open. After a restart the log is read from there,
and what lies before the position itself counts only for XA.

A server may end one without a word in its log: `XA COMMIT … ONE PHASE` of what another session prepared (seen on MySQL
9.7). So those that are held are looked for among the server's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowwater.errors import LogGapError
from lowwater_extractor.sources.mysql.ddl.statements import Xid
from lowwater_extractor.sources.mysql.position import Place
from lowwater_extractor.sources.mysql.transaction_buffer import Group


@dataclass(frozen=True, slots=True)
class _Held:
    group: Group
    #: in front of the group of its XA PREPARE
    place: Place


class HeldTransactions:
    def __init__(self, source: str, *, leaves_out: bool) -> None:
        self._source = source
        self._leaves_out = leaves_out
        #: in the order of their XA PREPAREs
        self._held: dict[Any, _Held] = {}

    @property
    def xids(self) -> frozenset[Any]:
        return frozenset(self._held)

    def take(self, xid: object) -> Group:
        return self._held.pop(xid).group

    def hold(self, xid: object, group: Group, place: Place) -> None:
        self._held[xid] = _Held(group, place)

    def end(self, xid: object, group: Group, *, is_commit: bool) -> tuple[Group | None, str]:
        """The group of an XA COMMIT with what it commits (None: nothing), and why something is left out."""
        held = self._held.pop(xid, None)
        if held is not None:
            return (group.with_changes(held.group) if is_commit else None), ""
        if group.is_covered or not is_commit:
            return None, ""
        if self._leaves_out:
            return None, f"XA {xid} was prepared before capture began"
        raise LogGapError(
            f"XA COMMIT {xid}, whose changes were written to the log before capture began",
            source=self._source, thread=1, position=group.gtid or None,
            hint="reset the source's position: capture begins anew; or set xa_at_start: leave_out",
        )  # fmt: skip

    def open(self) -> tuple[tuple[str, ...], Place | None]:
        """Names of those that are still open, and where to go back to for them."""
        if not self._held:
            return (), None
        return tuple(map(str, self._held)), next(iter(self._held.values())).place

    def check_all_there(self, wanted: tuple[str, ...]) -> None:
        """After a restart: what was held before must be held again."""
        if missing := set(wanted) - set(map(str, self._held)):
            raise LogGapError(
                f"XA {', '.join(sorted(missing))}: prepared before the restart, and not found in the log again",
                source=self._source, thread=1,
                hint="was the log purged? reset the source's position, its tables are copied anew",
            )  # fmt: skip


class EndedWithoutLog:
    """Finds held transactions that the server has ended without telling its log. Decides only, does no I/O."""

    def __init__(self) -> None:
        self._missing: frozenset[Xid] = frozenset()
        self._log_end: Place | None = None

    def ask(self, missing: frozenset[Xid], log_end: Place) -> None:
        """`missing`: those that the server no longer has; `log_end`: where its log ended when that was known."""
        if self._log_end is None:
            self._missing, self._log_end = missing, log_end

    def found(self, held: frozenset[Xid], has_passed: Callable[[Place], bool]) -> frozenset[Xid]:
        """Those whose end is not in the log up to where it must be. `has_passed`: all up to this place was read."""
        if self._log_end is None or not has_passed(self._log_end):
            return frozenset()
        self._log_end = None
        return self._missing & held
