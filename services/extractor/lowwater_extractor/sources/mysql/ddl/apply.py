"""Applies the effects of statements to captured tables: as changes where possible, otherwise as stale tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lowwater.errors import LogUnknownError
from lowwater.records.positions import Order
from lowwater_extractor.api import Frame
from lowwater_extractor.sources.mysql.ddl import foreign_keys as fk
from lowwater_extractor.sources.mysql.ddl.altered_tables import AlteredTables
from lowwater_extractor.sources.mysql.ddl.effects import AlteredNames, Effect, Name
from lowwater_extractor.sources.mysql.ddl.foreign_keys import ChildKey, ForeignKeys
from lowwater_extractor.sources.mysql.ddl.statements import Statement
from lowwater_extractor.sources.mysql.event_group import Group


class Tables(Protocol):
    def is_captured(self, table: str) -> bool: ...

    def captured_in(self, namespace: str) -> list[str]:
        """Return the captured tables of a database that may have published records."""
        ...

    def truncated(self, table: str, ts_us: int) -> Frame | None:
        """Return the truncate change of a table; None if the table is unknown, so nothing of it was published."""
        ...


class Keys:
    """Foreign keys whose actions change captured rows, and how they are handled."""

    def __init__(
        self, keys: ForeignKeys | None = None, *, is_refused: bool = False, is_logged: bool = False,
        keys_of: Callable[[str], list[ChildKey]] = lambda _: [],
    ) -> None:  # fmt: skip
        """`keys_of`: queries the catalogue for keys of a table and its parents that were not queried yet."""
        self.known = keys if keys is not None else ForeignKeys((), lambda _: False)
        self.keys_of = keys_of
        #: stop the source at a change by an action that is not in the log
        self.is_refused = is_refused
        #: the server logs changes by actions
        self.is_logged = is_logged


class Ddl:
    def __init__(
        self, tables: Tables, stale: AlteredTables, keys: Keys | None = None, *, is_lower: bool = False
    ) -> None:
        """`is_lower`: the server stores table names in lower case."""
        self._tables = tables
        self.stale = stale
        self.keys = keys or Keys()
        self._is_lower = is_lower

    def apply(self, statement: Statement, namespace: str, group: Group) -> None:
        for effect in statement.effects:
            self._apply(effect, statement.verb, namespace, group)

    def altered_names(self, statement: Statement, namespace: str) -> AlteredNames:
        found = AlteredNames([], set())
        for effect in statement.effects:
            if not effect.table[1]:
                found.databases.add(self._space(effect))
            else:
                new = self._full(effect.new_name, namespace) if effect.new_name is not None else ""
                found.tables.append((self._full(effect.table, namespace), new))
        return found

    def commit(self, group: Group, order: Order) -> None:
        """Mark the group's stale tables, at the order of the group."""
        for table, reason in group.stale.items():
            self.stale.add(table, order, reason)
        group.stale = {}

    def _space(self, effect: Effect) -> str:
        """Return the database of an effect that concerns a whole database."""
        return effect.table[0].lower() if self._is_lower else effect.table[0]

    def _full(self, name: Name, namespace: str) -> str:
        found = f"{name[0] or namespace}.{name[1]}"
        return found.lower() if self._is_lower else found

    def _apply(self, effect: Effect, verb: str, namespace: str, group: Group) -> None:
        if not effect.table[1]:
            for table in self._tables.captured_in(self._space(effect)):
                self._empty(table, group)
            return
        table = self._full(effect.table, namespace)
        if effect.new_name is not None:
            self._move(table, self._full(effect.new_name, namespace), group)
            return
        for key in effect.keys:
            # an unqualified parent is in the child's database, not in the session's
            self._new_key(ChildKey(table, self._full(key.parent, effect.table[0] or namespace), key))
        if not self._tables.is_captured(table):
            return
        if effect.is_versioned:
            raise LogUnknownError(
                f"{verb} TABLE makes {table} system-versioned, which cannot be captured yet",
                hint="list the tables individually, without this one; or DROP SYSTEM VERSIONING and reset the position",
            )
        if effect.is_emptied:
            self._empty(table, group)
        again = self.stale.columns(table, effect.added, effect.dropped)
        if again:
            group.stale[table] = f"{', '.join(again)}: dropped before, and added again"
        if effect.reason:
            group.stale[table] = effect.reason

    def _empty(self, table: str, group: Group) -> None:
        group.stale.pop(table, None)
        self.stale.emptied(table)
        if (frame := self._tables.truncated(table, group.ts_us)) is not None:
            group.buffer.add(frame)

    def _move(self, old: str, new: str, group: Group) -> None:
        """Handle a rename: the rows get another name without row events."""
        self.keys.known.moved(old, new)
        self._look_above(new)
        if self._tables.is_captured(old):
            self._empty(old, group)
        if self._tables.is_captured(new):
            group.stale[new] = f"{old} was renamed to it"

    # -- foreign keys ------------------------------------------------------------------------------------

    def _new_key(self, key: ChildKey) -> None:
        self.keys.known.add(key)
        self._look_above(key.parent)
        if self.keys.is_refused and not self.keys.is_logged and self._tables.is_captured(key.child):
            raise LogUnknownError(
                f"{key.child} has a foreign key to {key.parent} now, whose actions change rows without the log",
                hint=fk.HINT,
            )

    def _look_above(self, table: str) -> None:
        for key in self.keys.keys_of(table):
            self.keys.known.add(key)

    def parent_changed(self, parent: str, children: set[str], group: Group) -> None:
        """Mark the children stale whose rows may have changed with the parent's, or raise if that is refused."""
        if not children:
            return
        if self.keys.is_refused:
            raise LogUnknownError(
                f"rows of {parent} were changed, and by foreign keys, without the log, rows of "
                f"{', '.join(sorted(children))}",
                hint=fk.HINT,
            )
        for child in children:
            group.stale.setdefault(child, f"a foreign key's action changed its rows when those of {parent} changed")
