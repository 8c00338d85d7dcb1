"""Foreign keys whose actions change rows of children: ON DELETE / ON UPDATE with CASCADE, SET NULL, SET DEFAULT.

InnoDB does these by itself, and writes nothing of them to the log: of MySQL before 9.6, of later ones where
`innodb_native_foreign_keys` is on, of MariaDB always. Where the server does them (MySQL 9.6 and later), the changes are
in the log, and every event of rows says so in its flags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from lowwater.errors import SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.mysql.alter import foreign_keys
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.connect import quoted
from lowwater_extractor.sources.mysql.effects import ForeignKey
from lowwater_extractor.sources.mysql.server import Server
from lowwater_extractor.sources.mysql.tokens import tokens

#: flags of an event of rows: keys were not looked at; the server, not the engine, did what they say
UNCHECKED, DONE_BY_SERVER = 0x02, 0x10

#: the first MySQL that does it
DONE_FROM = (9, 6, 0)
#: the server's number for a table that is not there
_NO_TABLE = 1146
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
_KEYS = f"""
SELECT r.CONSTRAINT_SCHEMA, r.TABLE_NAME, k.REFERENCED_TABLE_SCHEMA, r.REFERENCED_TABLE_NAME, r.CONSTRAINT_NAME,
       r.DELETE_RULE IN {_ACTIONS}, r.UPDATE_RULE IN {_ACTIONS}, k.REFERENCED_COLUMN_NAME
FROM information_schema.REFERENTIAL_CONSTRAINTS r JOIN information_schema.KEY_COLUMN_USAGE k
  ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME
 AND k.TABLE_NAME = r.TABLE_NAME AND k.REFERENCED_TABLE_NAME IS NOT NULL
WHERE r.DELETE_RULE IN {_ACTIONS} OR r.UPDATE_RULE IN {_ACTIONS}
ORDER BY 1, 2, 5, k.ORDINAL_POSITION"""

HINT = (
    "set foreign_key_actions: recopy, and these tables are copied again whenever a parent's rows have changed them; or "
    "let the application change the children itself (RESTRICT); MySQL 9.6 and later write such changes to the log"
)


class ChildKey(NamedTuple):
    """Of tables by their full names."""

    child: str
    parent: str
    key: ForeignKey

    def __str__(self) -> str:
        return f"{self.child} → {self.parent}"


def is_done_by_server(server: Server) -> bool:
    """Whether the changes that keys make to children are in the log."""
    native = server.get("innodb_native_foreign_keys").upper()
    return not server.is_mariadb and server.version >= DONE_FROM and native in ("OFF", "0")


def find_keys(catalogue: DatabaseCatalogue, captured: Iterable[str], source: str) -> list[ChildKey]:
    """Those of captured tables, and those of their parents and so on: a change may come through several tables.

    MariaDB's lists show them only to users who may do more than SELECT, so there each table is asked by itself.
    """
    found: list[ChildKey] = [] if catalogue.server.is_mariadb else _listed(catalogue)
    wanted = set(captured)
    seen = set() if catalogue.server.is_mariadb else set(wanted)
    left = [name for name in wanted if name not in seen] + [key.parent for key in found if key.child in wanted]
    while left:
        name = left.pop()
        if name in seen:
            continue
        seen.add(name)
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


def _keys_of(catalogue: DatabaseCatalogue, name: str, source: str) -> list[ChildKey]:
    namespace, table = name.split(".", 1)
    try:
        ((_, text, *_),) = catalogue.ask(f"SHOW CREATE TABLE {quoted(namespace, table)}")
    except SourceLostError:
        raise
    except SourceError as error:
        if f"({_NO_TABLE})" in error.what:
            # gone since, or never made: a key may name a parent that is not there
            return []
        raise StartRefusedError(
            f"whether foreign keys change rows of {name}, a parent of captured tables, cannot be seen: {error.what}",
            source=source, hint=f"GRANT SELECT ON {quoted(namespace, table)} to the user of this source",
        ) from error  # fmt: skip
    keys = foreign_keys(list(tokens(text, is_mariadb=catalogue.server.is_mariadb)))
    return [ChildKey(name, f"{key.parent[0] or namespace}.{key.parent[1]}", key) for key in keys]


class ForeignKeys:
    """Which captured tables a change of a parent may have changed. Those of a key that is gone stay until a restart: a
    copy too many is no harm."""

    def __init__(self, keys: Iterable[ChildKey], is_captured: Callable[[str], bool]) -> None:
        self._is_captured = is_captured
        self._keys: dict[str, list[ChildKey]] = {}
        for key in keys:
            self.add(key)

    def add(self, key: ChildKey) -> None:
        known = self._keys.setdefault(key.parent, [])
        if key not in known:
            known.append(key)

    def moved(self, old: str, new: str) -> None:
        """A table has another name; keys follow it."""
        every = [key for keys in self._keys.values() for key in keys]
        self._keys = {}
        for key in every:
            child, parent = (new if name == old else name for name in (key.child, key.parent))
            self.add(key._replace(child=child, parent=parent))

    def is_parent(self, table: str) -> bool:
        return table in self._keys

    def children_of_delete(self, parent: str) -> set[str]:
        return self._closure(key for key in self._keys.get(parent, ()) if key.key.acts_on_delete)

    def updates_of(self, parent: str) -> list[ChildKey]:
        """Keys that do something when their columns of the parent change."""
        return [key for key in self._keys.get(parent, ()) if key.key.acts_on_update]

    def children_of_update(self, keys: Iterable[ChildKey]) -> set[str]:
        return self._closure(keys)

    def _closure(self, keys: Iterable[ChildKey]) -> set[str]:
        """With the children's children: what happened to the rows in between is not known."""
        found: set[str] = set()
        left = [key.child for key in keys]
        while left:
            child = left.pop()
            if child not in found:
                found.add(child)
                left += [key.child for key in self._keys.get(child, ())]
        return {child for child in found if self._is_captured(child)}

    def captured(self) -> list[ChildKey]:
        """Keys that change captured tables."""
        found = []
        for keys in self._keys.values():
            found += [key for key in keys if self._is_captured(key.child)]
        return found
