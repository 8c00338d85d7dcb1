"""Decodes row changes of one table version to values of its published columns: the slow path, for every kind of change.

A row that is older than a column ends before it. Then the column is NULL, or has the default that it was added with:
the database does not write the default into old rows, but stores it in the dictionary (ECOL$). For a nullable column, a
guard bit in a hidden column distinguishes a NULL that was written from the default.
"""

from __future__ import annotations

from typing import Any, Final

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.rows.number_values import Decode
from lowwater_extractor.sources.oracle.rows.pairs import Value
from lowwater_extractor.sources.oracle.rows.row_changes import RowChange
from lowwater_extractor.sources.oracle.rows.values import ERRORS, MISSING, decoder
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType, has_locator, why_unreadable

OUT_OF_LINE = "a LOB that lies outside of its row"

#: types that supplemental logging of all columns does not include
_NEVER_LOGGED = frozenset({OracleType.LONG, OracleType.LONG_RAW})
#: the column is not in the log
_ABSENT: Final = object()


class TableRows:
    """Decodes the changes of one table version."""

    def __init__(self, version: TableVersion) -> None:
        self.version = version
        self.columns: list[tuple[OracleColumn, Decode | None]] = [(c, decoder(c)) for c in version.visible]
        self._guard = next((c.number for c in version.columns if c.is_guard), 0)
        by_name = {c.name: c for c in version.visible}
        # without a key a row is identified by all its logged columns
        needed = [by_name[name] for name in version.key] or [c for c in version.visible if is_logged(c)]
        self._needed = [c.number for c in needed]
        self._width = len(version.stored)

    def values(self, change: RowChange) -> tuple[list[Any] | None, list[Any] | None, list[str]]:
        """(before, after, columns that are not in the log)."""
        known = {*change.before, *change.after, *change.more}
        highest = max(known, default=0)
        if highest > self._width:
            raise LogUnknownError(
                f"a row of {self.version.full_name} has segment column {highest}, the dictionary has {self._width}",
                hint="the table was altered, and the dictionary is older: reset the source",
            )
        unchanged: list[str] = []
        if change.op == "c":
            return None, self._decoded(change, True, highest, unchanged), unchanged
        before = self._decoded(change, False, highest, [])
        if change.op == "d":
            return before, None, []
        self._check_key(change, highest)
        return before, self._decoded(change, True, highest, unchanged), unchanged

    def lacking(self, change: RowChange, unchanged: list[str]) -> dict[str, str]:
        """The columns that this change has written, but whose value is not in the log → why."""
        return {
            c.name: why_unreadable(c) or OUT_OF_LINE
            for c, _ in self.columns
            if c.number in change.after and c.name in unchanged
        }

    def _raw(self, change: RowChange, column: int, is_after: bool, highest: int, logged: bool = True) -> Any:
        this, other = (change.after, change.before) if is_after else (change.before, change.after)
        if column in this:
            return this[column]
        if change.op != "u":
            return None
        if is_after and column in other:
            # its piece was rewritten, and ends before it
            return None
        if column in change.more:
            return change.more[column]
        if column in other:
            return None
        # if all columns are logged, those after the last are NULLs at the row's end
        if self.version.logs_all and change.has_group and logged and column > highest:
            return None
        return _ABSENT

    def _decoded(self, change: RowChange, is_after: bool, highest: int, unchanged: list[str]) -> list[Any]:
        row: list[Any] = []
        guards = self._raw(change, self._guard, is_after, highest) if self._guard else None
        for column, decode in self.columns:
            raw = self._raw(change, column.number, is_after, highest, is_logged(column))
            value = None
            if raw is None:
                raw = _default(column, guards)
            if raw is _ABSENT:
                unchanged.append(column.name)
            elif raw is not None:
                value = self._value(column, decode, raw)
                if value is MISSING:
                    value = None
                    unchanged.append(column.name)
            row.append(value)
        return row

    def _value(self, column: OracleColumn, decode: Decode | None, raw: bytes) -> Any:
        if decode is None:
            return MISSING
        try:
            return decode(raw)
        except ERRORS as cause:
            # the value is left out of the message
            what = cause.what if isinstance(cause, CodecError) else f"its bytes are not of type {column.type}"
            hint = (
                isinstance(cause, CodecError) and cause.hint
            ) or "the dictionary may not match the log: reset the source"
            raise CodecError(f"{self.version.full_name}.{column.name}: {what}", hint=hint) from cause

    def _check_key(self, change: RowChange, highest: int) -> None:
        for number in self._needed:
            if self._raw(change, number, True, highest) is _ABSENT:
                raise without_key(self.version, "an update")


def without_key(version: TableVersion, change: str) -> LogUnknownError:
    """The error for a change that lacks the key. `change`: "an update", "a delete"."""
    what = "the key" if version.key else "all columns, which it needs because it has no key"
    return LogUnknownError(
        f"{change} of {version.full_name} is in the log without {what}",
        hint=f"{version.log_statement()}; then reset the source",
    )


def is_logged(column: OracleColumn) -> bool:
    """Whether supplemental logging of all columns includes it, and its value is in the row."""
    return not has_locator(column) and column.type not in _NEVER_LOGGED and not why_unreadable(column)


def _default(column: OracleColumn, guards: Any) -> Value:
    """The value that a NULL, or a missing column, stands for: the default that the column was added with, or NULL."""
    if column.default is None:
        return None
    if column.guard is not None and isinstance(guards, bytes):
        at, bit = divmod(column.guard, 8)
        if at < len(guards) and guards[at] >> bit & 1:
            return None
    return column.default
