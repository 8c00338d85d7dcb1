"""Reads LOBs that are not in the log from the database, as of the commit's SCN: `lob_fetch: at_commit`.

The value is that at the end of the transaction, without changes of later transactions. Intermediate values are not
available: all changes of a row in one transaction get the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowwater.codec.table import ColumnKind
from lowwater_extractor.sources.oracle.connect import Database, quoted
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.scn import Scn

#: keys of these kinds can be bound as they are published
_BOUND = frozenset({ColumnKind.INT32, ColumnKind.INT64, ColumnKind.DECIMAL, ColumnKind.STRING, ColumnKind.BYTES})


class LobFetch:
    """Reads LOBs. `database` is a session in the captured container."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def fill(self, table: TableVersion, columns: Sequence[str], row: list[Any], scn: Scn) -> bool:
        """Read `columns` of the row with the same key into `row`.

        False: the row did not exist at the commit, or its key cannot be used in a query.
        """
        places = {column.name: place for place, column in enumerate(table.schema.columns)}
        kinds = [table.schema.columns[places[name]].type.kind for name in table.key]
        key = [_bound(row[places[name]], kind) for name, kind in zip(table.key, kinds, strict=True)]
        if not key or None in key or not _BOUND.issuperset(kinds):
            return False
        listed = ", ".join(map(quoted, columns))
        where = " AND ".join(f"{quoted(name)} = :k{at}" for at, name in enumerate(table.key))
        sql = f"SELECT {listed} FROM {quoted(table.owner)}.{quoted(table.table)} AS OF SCN :scn WHERE {where}"
        binds = {f"k{at}": value for at, value in enumerate(key)}
        found = self._database.ask(sql, scn=scn, **binds)
        for name, value in zip(columns, found[0] if found else (), strict=False):
            row[places[name]] = value
        return bool(found)


def _bound(value: Any, kind: ColumnKind) -> Any:
    """The value for a bind variable. Text may still be UTF-8 bytes of the log."""
    return value.decode() if kind is ColumnKind.STRING and isinstance(value, bytes) else value
