"""Foreign keys whose actions change rows of children: ON DELETE / ON UPDATE with CASCADE, SET NULL, SET DEFAULT.

If InnoDB performs these actions, the changes are not in the log: in MySQL before 9.6, in later versions with
`innodb_native_foreign_keys` on, and always in MariaDB. If the server performs them (MySQL 9.6 and later), the changes
are in the log, and the flags of every row event show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from lowwater.errors import CodecError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.ddl.alter import foreign_keys
from lowwater_extractor.sources.mysql.ddl.effects import ForeignKey
from lowwater_extractor.sources.mysql.ddl.tokens import NotUnderstoodError, tokens
from lowwater_extractor.sources.mysql.server import Server

#: flags of a row event: foreign keys were not checked; the server, not the engine, performed the actions
UNCHECKED, DONE_BY_SERVER = 0x02, 0x10

#: the first MySQL version in which the server performs the actions
DONE_FROM = (9, 6, 0)
#: ER_NO_SUCH_TABLE
_NO_TABLE = 1146
_NOTE = "foreign_keys/"
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
_KEYS = f"""
SELECT r.CONSTRAINT_SCHEMA, r.TABLE_NAME, k.REFERENCED_TABLE_SCHEMA, r.REFERENCED_TABLE_NAME, r.CONSTRAINT_NAME,
       r.DELETE_RULE IN {_ACTIONS}, r.UPDATE_RULE IN {_ACTIONS}, k.REFERENCED_COLUMN_NAME
FROM information_schema.REFERENTIAL_CONSTRAINTS r JOIN information_schema.KEY_COLUMN_USAGE k
  ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME
 AND k.TABLE_NAME = r.TABLE_NAME AND k.REFERENCED_TABLE_NAME IS NOT NULL
WHERE r.DELETE_RULE IN {_ACTIONS} OR r.UPDATE_RULE IN {_ACTIONS}
ORDER BY 1, 2, 5, k.ORDINAL_POSITION"""

#: MariaDB does not double backquotes in the names of a foreign key and of its columns, only in those of tables
_MARIADB_KEY = re.compile(
    r",\n\ \ CONSTRAINT\ `.+?`\ FOREIGN\ KEY\ \(`.+?`\)\ REFERENCES\ (?P<parent>(?:`(?:[^`]|``)+`\.)?`(?:[^`]|``)+`)"
    r"\ \(`(?P<columns>.+?)`\)(?P<actions>(?:\ ON\ (?:DELETE|UPDATE)\ [A-Z]+(?:\ [A-Z]+)?)*)(?=,\n|\n\))",
    re.DOTALL | re.VERBOSE,
)

HINT = (
    "set foreign_key_actions: recopy, and these tables are copied again whenever a parent's rows have changed them; or "
    "let the application change the children itself (RESTRICT); MySQL 9.6 and later write these changes to the log"
)


class ChildKey(NamedTuple):
    """A foreign key with the full names of its tables."""

    child: str
    parent: str
    key: ForeignKey

    def __str__(self) -> str:
        return f"{self.child} → {self.parent}"


def _moved(key: ChildKey, old: str, new: str) -> ChildKey:
    child, parent = (new if name == old else name for name in (key.child, key.parent))
    return key._replace(child=child, parent=parent)


def _packed(keys: Iterable[ChildKey]) -> bytes:
    return json.dumps([[child, parent, *key] for child, parent, key in sorted(keys)]).encode()


def _unpacked(data: bytes) -> list[ChildKey]:
    try:
        return [
            ChildKey(child, parent, ForeignKey((name[0], name[1]), tuple(columns), on_delete, on_update))
            for child, parent, name, columns, on_delete, on_update in json.loads(data)
        ]
    except (ValueError, TypeError) as error:
        raise CodecError(
            f"the stored foreign keys cannot be read: {error}",
            hint="was it written by a newer lowwater? upgrade this one; or reset the source",
        ) from error


def is_done_by_server(server: Server) -> bool:
    """Whether changes by foreign key actions are in the log."""
    native = server.get("innodb_native_foreign_keys").upper()
    return not server.is_mariadb and server.version >= DONE_FROM and native in ("OFF", "0")


def find_keys(catalogue: DatabaseCatalogue, tables: Iterable[str], source: str, asked: set[str]) -> list[ChildKey]:
    """Return the foreign keys of these tables and of all their ancestors: actions may cascade through several tables.

    MariaDB's information_schema shows them only to users with more privileges than SELECT, so there each table is
    queried individually, unless it is in `asked`. Queried tables are added to `asked`.
    """
    wanted = set(tables)
    if catalogue.server.is_mariadb:
        found: list[ChildKey] = []
        left = list(wanted)
    else:
        found = _listed(catalogue)
        asked |= wanted
        # users see only tables that they may read: check that the parents are visible
        left = [key.parent for key in found if key.child in wanted]
    while left:
        name = left.pop()
        if name in asked:
            continue
        asked.add(name)
        keys = _keys_of(catalogue, name, source)
        found += keys
        left += [key.parent for key in keys]
    return found


def _listed(catalogue: DatabaseCatalogue) -> list[ChildKey]:
    found: dict[tuple[str, str, str], ChildKey] = {}
    for space, child, parent_space, parent, name, on_delete, on_update, column in catalogue.ask(_KEYS):
        at = (space, child, name)
        columns = (*found[at].key.columns, column) if at in found else (column,)
        key = ForeignKey((parent_space, parent), columns, bool(on_delete), bool(on_update))
        found[at] = ChildKey(f"{space}.{child}", f"{parent_space}.{parent}", key)
    return list(found.values())


def _requoted(found: re.Match[str]) -> str:
    columns = [name.replace("`", "``") for name in found["columns"].split("`, `")]
    return f",\n  FOREIGN KEY REFERENCES {found['parent']} (`{'`, `'.join(columns)}`){found['actions']}"


def _keys_of(catalogue: DatabaseCatalogue, name: str, source: str) -> list[ChildKey]:
    namespace, table = name.split(".", 1)
    try:
        ((_, text, *_),) = catalogue.ask(f"SHOW CREATE TABLE {quoted(namespace, table)}")
    except SourceLostError:
        raise
    except SourceError as error:
        if f"({_NO_TABLE})" in error.what:
            # dropped, or never created: a key may reference a parent that does not exist
            return []
        raise StartRefusedError(
            f"the foreign keys of {name}, a parent of captured tables, cannot be read: {error.what}",
            source=source, hint=f"GRANT SELECT ON {quoted(namespace, table)} to the user of this source",
        ) from error  # fmt: skip
    if catalogue.server.is_mariadb:
        text = _MARIADB_KEY.sub(_requoted, text)
    try:
        keys = foreign_keys(list(tokens(text, is_mariadb=catalogue.server.is_mariadb)))
    except NotUnderstoodError as error:
        raise StartRefusedError(
            f"the definition of {name} (SHOW CREATE TABLE) cannot be parsed: {error}",
            source=source, hint=f"remove backquotes from the names in the foreign keys of {name}, or exclude the table",
        ) from error  # fmt: skip
    return [ChildKey(name, f"{key.parent[0] or namespace}.{key.parent[1]}", key) for key in keys]


class ForeignKeys:
    """Finds the captured tables that a change of a parent may have changed.

    A key in the catalogue may be newer than the log that is read, and a key dropped while the log is read stays until
    the next start: an unnecessary copy does no harm. A key that existed when the log was last read, and is not in the
    catalogue any more, is in the notes and stays in effect until `forget_gone`.
    """

    def __init__(
        self, keys: Iterable[ChildKey], is_captured: Callable[[str], bool], notes: Mapping[str, bytes] | None = None
    ) -> None:
        """`keys`: from the catalogue; `notes`: all notes of the source, of which only foreign keys are used."""
        self._is_captured = is_captured
        self._keys: dict[str, list[ChildKey]] = {}
        self._noted = {name: data for name, data in (notes or {}).items() if name.startswith(_NOTE) and data}
        for key in keys:
            self.add(key)
        there = set(self)
        self._gone = {key for data in self._noted.values() for key in _unpacked(data)} - there
        for key in self._gone:
            self.add(key)
        self._is_changed = True

    def __iter__(self) -> Iterator[ChildKey]:
        return chain.from_iterable(self._keys.values())

    def add(self, key: ChildKey) -> None:
        known = self._keys.setdefault(key.parent, [])
        if key not in known:
            known.append(key)
            self._is_changed = True

    def moved(self, old: str, new: str) -> None:
        """Update the keys for a renamed table."""
        self._gone = {_moved(key, old, new) for key in self._gone}
        self._replace(_moved(key, old, new) for key in self)

    @property
    def has_gone(self) -> bool:
        return bool(self._gone)

    def forget_gone(self) -> None:
        """Remove dropped keys, once the log was read up to the time of the catalogue query."""
        if self._gone:
            self._replace(key for key in self if key not in self._gone)
            self._gone = set()

    def _replace(self, keys: Iterable[ChildKey]) -> None:
        every = list(keys)
        self._keys = {}
        for key in every:
            self.add(key)
        self._is_changed = True

    def notes(self) -> dict[str, bytes]:
        """Return changed notes for `Polled.notes`; an empty value deletes a note. Contains only the keys of captured
        tables and their ancestors."""
        if not self._is_changed:
            return {}
        self._is_changed = False
        by_child: dict[str, list[ChildKey]] = {}
        for key in self:
            by_child.setdefault(key.child, []).append(key)
        now: dict[str, bytes] = {}
        left = [child for child in by_child if self._is_captured(child)]
        while left:
            name = _NOTE + (child := left.pop())
            if name not in now and child in by_child:
                now[name] = _packed(by_child[child])
                left += [key.parent for key in by_child[child]]
        before, self._noted = self._noted, now
        gone = dict.fromkeys(before.keys() - now.keys(), b"")
        return gone | {name: data for name, data in now.items() if before.get(name) != data}

    def is_parent(self, table: str) -> bool:
        return table in self._keys

    def children_of_delete(self, parent: str) -> set[str]:
        return self._closure(key for key in self._keys.get(parent, ()) if key.key.acts_on_delete)

    def updates_of(self, parent: str) -> list[ChildKey]:
        """Return the keys with an action on updates of the parent's key columns."""
        return [key for key in self._keys.get(parent, ()) if key.key.acts_on_update]

    def children_of_update(self, keys: Iterable[ChildKey]) -> set[str]:
        return self._closure(keys)

    def _closure(self, keys: Iterable[ChildKey]) -> set[str]:
        """Return captured children and descendants: the actual changes in between are unknown."""
        found: set[str] = set()
        left = [key.child for key in keys]
        while left:
            child = left.pop()
            if child not in found:
                found.add(child)
                left += [key.child for key in self._keys.get(child, ())]
        return {child for child in found if self._is_captured(child)}

    def captured(self) -> list[ChildKey]:
        """Return existing keys whose actions change captured tables."""
        return [key for key in self if self._is_captured(key.child) and key not in self._gone]
