"""Table definitions, from the CREATE statement in `sqlite_schema`, which the engine parses in a database in memory."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import turso

from lowwater.codec import table as types
from lowwater.codec.table import Column, TableSchema, Type
from lowwater.errors import LogUnknownError

NAMESPACE = "main"
#: the key of a table without one, if configured
ROWID = "rowid"
#: so that every statement that a writer's connection accepted is accepted here
_FEATURES = "custom_types,generated_columns,strict,views,without_rowid"
_ENGINES = ("turso_cdc", "turso_cdc_version")
#: SQLite and Turso store "CREATE TABLE " and the statement from the name on
_CREATE = re.compile(
    r"""CREATE\s+TABLE\s+(?:"(?:[^"]|"")*"|`(?:[^`]|``)*`|'(?:[^']|'')*'|\[[^\]]*\]|[^\s("'`\[]+)""", re.IGNORECASE
)
#: a name that the engine accepts in every statement
_SAFE_NAME = "lowwater_definition"
_DESCENDING = re.compile(r"PRIMARY\s+KEY\s+DESC\b", re.IGNORECASE)


class CellType(StrEnum):
    """The type with which a column is published. Most SQLite columns accept values of every type: a value that does not
    fit stops the source, except for `any`, which holds all."""

    INTEGER = "integer"
    REAL = "real"
    TEXT = "text"
    BLOB = "blob"
    #: JSON: a number, a text, or an object that contains the type
    ANY = "any"


_PUBLISHED: dict[CellType, Type] = {
    CellType.INTEGER: types.INT64,
    CellType.REAL: types.FLOAT64,
    CellType.TEXT: types.STRING,
    CellType.BLOB: types.BYTES,
    CellType.ANY: types.JSON,
}


def affinity(declared: str) -> CellType:
    """Apply SQLite's affinity rules. NUMERIC columns, and columns without a type, are published as `any`."""
    name = declared.upper()
    if "INT" in name:
        return CellType.INTEGER
    if any(word in name for word in ("CHAR", "CLOB", "TEXT")):
        return CellType.TEXT
    if "BLOB" in name:
        return CellType.BLOB
    if any(word in name for word in ("REAL", "FLOA", "DOUB")):
        return CellType.REAL
    return CellType.ANY


@dataclass(frozen=True, slots=True)
class Cell:
    name: str
    type: CellType
    #: rows older than the column have a value in it
    is_filled: bool


@dataclass(frozen=True, slots=True)
class Definition:
    """A table, as defined by a CREATE statement of `sqlite_schema`."""

    name: str
    #: the columns of a record; generated columns are not stored
    cells: tuple[Cell, ...]
    key: tuple[str, ...]
    #: the column that is an alias of the rowid, or empty
    alias: str
    has_rowid: bool

    @property
    def full_name(self) -> str:
        return f"{NAMESPACE}.{self.name}"

    def schema(self, source: str, *, keys_only: bool = False) -> TableSchema:
        """Return the table without a version number; a table without a key gets its rowid as key."""
        cells = [Column(cell.name, _PUBLISHED[cell.type]) for cell in self.cells]
        key = self.key
        if not key:
            cells, key = [Column(ROWID, types.INT64), *cells], (ROWID,)
        if keys_only:
            cells = [column for column in cells if column.name in key]
        return TableSchema(source, NAMESPACE, self.name, 0, tuple(cells), key)


class Definitions:
    """Parses CREATE statements; `wanted`: `main.table.column` → configured type."""

    def __init__(self, source: str, wanted: Mapping[str, CellType]) -> None:
        self._source = source
        self._wanted = wanted
        self._memory = turso.connect(":memory:", isolation_level=None, experimental_features=_FEATURES)
        self._known: dict[tuple[str, str], Definition] = {}

    def definition(self, name: str, sql: str) -> Definition:
        known = self._known.get((name, sql))
        if known is None:
            known = self._known[name, sql] = self._read(name, sql)
        return known

    def _read(self, name: str, sql: str) -> Definition:
        # the engine does not quote names everywhere: it refuses AUTOINCREMENT in a table with a quote in its name, as a
        # rename can make it
        safe = (_SAFE_NAME, _CREATE.sub(f"CREATE TABLE {_SAFE_NAME}", sql, count=1))
        refused: turso.Error | None = None
        for tried, text in ((name, sql), safe):
            try:
                return self._made(name, sql, self._columns(tried, text))
            except turso.Error as error:
                refused = refused or error
        raise LogUnknownError(
            f"the CREATE statement of table {name} cannot be read: {refused}",
            source=self._source,
            thread=1,
            hint="is the writer's Turso newer than lowwater's? update pyturso, then restart the source",
        ) from refused

    def _columns(self, name: str, sql: str) -> list[tuple[Any, ...]]:
        ask = self._memory.execute
        ask(sql).fetchall()
        rows = ask(f"PRAGMA table_xinfo({quoted(name)})").fetchall()
        ask(f"DROP TABLE {quoted(name)}").fetchall()
        return list(rows)

    def _made(self, name: str, sql: str, rows: list[tuple[Any, ...]]) -> Definition:
        cells = []
        for _, column, declared, _, default, _, hidden in rows:
            if not hidden:
                chosen = self._wanted.get(f"{NAMESPACE}.{name}.{column}") or affinity(declared or "")
                cells.append(Cell(column, chosen, default is not None and str(default).upper() != "NULL"))
        key = [(place, column, declared) for _, column, declared, _, _, place, _ in rows if place]
        options = sql[sql.rfind(")") + 1 :].upper()
        has_rowid = "WITHOUT" not in options
        is_alias = has_rowid and len(key) == 1 and (key[0][2] or "").upper() == "INTEGER"
        alias = key[0][1] if is_alias and not _DESCENDING.search(sql) else ""
        return Definition(name, tuple(cells), tuple(column for _, column, _ in sorted(key)), alias, has_rowid)


def quoted(name: str) -> str:
    """Return a quoted identifier; identifiers cannot be bound as parameters."""
    if "\x00" in name:
        raise ValueError("a name with a zero byte")
    return '"' + name.replace('"', '""') + '"'


def is_internal(name: str) -> bool:
    """Return whether a table belongs to the engine; such tables are never captured."""
    return name in _ENGINES or name.startswith(("sqlite_", "__turso_internal", "turso_sync_"))
