"""Queries of the server's catalogue for properties that the log lacks, over a separate connection."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from pymysql.connections import Connection

from lowwater.errors import LogUnknownError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import Rows, connect, query
from lowwater_extractor.sources.mysql.ddl.effects import Name
from lowwater_extractor.sources.mysql.server import Server, look
from lowwater_extractor.sources.mysql.types import BINARY_COLLATION
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.table_map import TableMap, WireColumn

_TABLES = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE FROM information_schema.TABLES
WHERE TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND {where}
ORDER BY 1, 2"""
_COLUMNS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, COLLATION_NAME, NUMERIC_PRECISION, NUMERIC_SCALE,
       DATETIME_PRECISION, CHARACTER_OCTET_LENGTH, COLUMN_DEFAULT, EXTRA, IS_NULLABLE, COLUMN_KEY
FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys') AND {where}
ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""
_KEYS = """
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS
WHERE INDEX_NAME = 'PRIMARY' AND {where} ORDER BY TABLE_SCHEMA, TABLE_NAME, SEQ_IN_INDEX"""
_ONE = "TABLE_SCHEMA = %s AND TABLE_NAME = %s"
#: attempts to read a consistent definition of tables that are being altered
_LOOKS_MAX = 20

_PLAIN = {
    "tinyint": tm.TINY, "smallint": tm.SHORT, "mediumint": tm.INT24, "int": tm.LONG, "bigint": tm.LONGLONG,
    "year": tm.YEAR, "date": tm.DATE,
}  # fmt: skip
_TIMED = {"datetime": tm.DATETIME2, "timestamp": tm.TIMESTAMP2, "time": tm.TIME2}
_TEXTS = {"char": tm.STRING, "varchar": tm.VARCHAR, "binary": tm.STRING, "varbinary": tm.VARCHAR}
_BLOBS = {"tinytext": 1, "text": 2, "mediumtext": 3, "longtext": 4, "tinyblob": 1, "blob": 2, "mediumblob": 3,
          "longblob": 4}  # fmt: skip
_GEOMETRIES = ("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
               "geometrycollection", "geomcollection")  # fmt: skip
_LABEL = re.compile(r"'((?:[^'\\]|''|\\.)*)'")


class _Look(NamedTuple):
    """A table as read by three queries, which may be inconsistent with each other."""

    name: Name
    kind: str
    columns: list[tuple[Any, ...]]
    key: list[str]

    @property
    def is_whole(self) -> bool:
        return bool(self.columns) and {row[0] for row in self.columns if row[-1] == "PRI"} == set(self.key)


@dataclass(frozen=True, slots=True)
class CatalogueTable:
    #: equivalent table map, with names, labels and key
    map: TableMap
    #: BASE TABLE, VIEW, SYSTEM VERSIONED
    kind: str
    #: names of columns
    nullable: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.map.namespace}.{self.map.table}"

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(self.map.columns[i].name for i in self.map.key)


class DatabaseCatalogue:
    def __init__(self, config: MysqlConfig, source: str) -> None:
        self._config = config
        self._source = source
        self._connection: Connection[Any] | None = None
        self._server: Server | None = None
        self._charsets: dict[int, str] = {}
        self._collations: dict[str, int] = {}

    @property
    def connection(self) -> Connection[Any]:
        if self._connection is None:
            self._connection = connect(self._config, self._source)
        return self._connection

    @property
    def server(self) -> Server:
        if self._server is None:
            self._server = look(self.connection, self._source)
        return self._server

    def ask(self, text: str, *values: object) -> Rows:
        return query(self.connection, self._source, text, *values)

    # -- tables ------------------------------------------------------------------------------------------

    def tables(self, is_meant: Callable[[str], bool]) -> list[CatalogueTable]:
        """Return the tables and views for which `is_meant(name)` is true."""
        return self._tables("TRUE", (), is_meant)

    def find(self, namespace: str, table: str) -> CatalogueTable | None:
        return next(iter(self._tables(_ONE, (namespace, table))), None)

    def table(self, namespace: str, table: str) -> TableMap | None:
        found = self.find(namespace, table)
        return None if found is None else found.map

    def filled(self, namespace: str, table: str) -> set[str]:
        rows = self.ask(_COLUMNS.format(where=_ONE), namespace, table)
        return {row[2] for row in rows if _is_filled(*row[10:13])}

    def _tables(
        self, where: str, values: tuple[str, ...], is_meant: Callable[[str], bool] = lambda _: True
    ) -> list[CatalogueTable]:
        found = []
        for (namespace, table), kind, rows, key_names in self._looked_at(where, values, is_meant):
            names = [row[0] for row in rows]
            key = tuple(names.index(name) for name in key_names)
            wires = tuple(self._wire(f"{namespace}.{table}", row) for row in rows)
            map_ = TableMap(namespace, table, wires, is_full=True, key=key)
            nullable = frozenset(row[0] for row in rows if row[-2] == "YES")
            found.append(CatalogueTable(map_, kind, nullable))
        return found

    def _looked_at(self, where: str, values: tuple[str, ...], is_meant: Callable[[str], bool]) -> list[_Look]:
        """Read consistent definitions. Tables, columns and keys are separate queries, and a table may be altered in
        between; inconsistent results are read again. A result that is inconsistent twice in the same way is accepted:
        COLUMN_KEY is also PRI for a unique index that serves as key, which is not in the list of primary keys."""
        before: list[_Look] = []
        for _ in range(_LOOKS_MAX):
            looks = self._look(where, values, is_meant)
            torn = [look for look in looks if not look.is_whole]
            if not torn or torn == before:
                return [look for look in looks if look.columns]
            before = torn
        raise SourceLostError(
            f"{before[0].name[0]}.{before[0].name[1]} was altered while its definition was read, "
            f"{_LOOKS_MAX} times", source=self._source, hint="it is tried again",
        )  # fmt: skip

    def _look(self, where: str, values: tuple[str, ...], is_meant: Callable[[str], bool]) -> list[_Look]:
        columns: dict[Name, list[tuple[Any, ...]]] = {}
        for namespace, table, *rest in self.ask(_COLUMNS.format(where=where), *values):
            columns.setdefault((namespace, table), []).append(tuple(rest))
        keys: dict[Name, list[str]] = {}
        for namespace, table, column in self.ask(_KEYS.format(where=where), *values):
            keys.setdefault((namespace, table), []).append(column)
        return [
            _Look((namespace, table), kind, columns.get((namespace, table), []), keys.get((namespace, table), []))
            for namespace, table, kind in self.ask(_TABLES.format(where=where), *values)
            if is_meant(f"{namespace}.{table}")
        ]

    def _wire(self, where: str, row: tuple[Any, ...]) -> WireColumn:
        name, data_type, column_type, collation, precision, scale, fraction, octets, *_ = row
        try:
            wire = wire_of(data_type.lower(), column_type, precision, scale, fraction, octets)
        except StartRefusedError as error:
            raise StartRefusedError(f"{where}.{name}: {error.what}", source=self._source, hint=error.hint) from error
        wire = replace(wire, name=name)
        if wire.type in tm.CHARACTER:
            return replace(wire, collation=self._collation(collation) if collation else BINARY_COLLATION)
        return wire

    # -- character sets ----------------------------------------------------------------------------------

    def _load_collations(self) -> None:
        if self._charsets:
            return
        source = "COLLATION_CHARACTER_SET_APPLICABILITY" if self._has_full_names else "COLLATIONS"
        name = "FULL_COLLATION_NAME" if self._has_full_names else "COLLATION_NAME"
        for collation, charset, number in self.ask(
            f"SELECT {name}, CHARACTER_SET_NAME, ID FROM information_schema.{source} WHERE ID IS NOT NULL"
        ):
            self._collations[collation] = int(number)
            self._charsets[int(number)] = charset

    @property
    def _has_full_names(self) -> bool:
        """Whether collations may belong to several character sets; COLLATIONS has no ids for these."""
        return self.server.is_mariadb and self.server.version >= (10, 10, 1)

    def _collation(self, name: str) -> int:
        self._load_collations()
        if name in self._collations:
            return self._collations[name]
        raise LogUnknownError(f"the server has no collation {name}", source=self._source)

    def charset(self, collation: int) -> str:
        self._load_collations()
        if collation not in self._charsets:
            raise LogUnknownError(f"the server has no collation with id {collation}")
        return self._charsets[collation]

    def letters(self, charset: str) -> list[str]:
        """Return the characters of all 256 bytes, converted by the server; empty for a multi-byte character set."""
        rows = self.ask("SELECT MAXLEN FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME = %s", charset)
        if not rows or rows[0][0] != 1 or not re.fullmatch(r"[a-z0-9_]+", charset):
            return []
        asked = ", ".join(f"HEX(CONVERT(_{charset} X'{byte:02X}' USING utf8mb4))" for byte in range(256))
        (found,) = self.ask(f"SELECT {asked}")
        return [bytes.fromhex(text).decode() for text in found]

    def close(self) -> None:
        if self._connection is not None and self._connection.open:
            self._connection.close()


def _is_filled(default: str | None, extra: str | None, nullable: str) -> bool:
    """Whether a column gets a value if an INSERT omits it. NOT NULL columns have an implicit default (0, empty)."""
    words = (extra or "").lower()
    # MariaDB reports the text NULL
    has_default = default is not None and default.upper() != "NULL"
    return has_default or nullable == "NO" or "auto_increment" in words or "generated" in words


def wire_of(
    data_type: str, column_type: str, precision: int | None, scale: int | None, fraction: int | None, octets: int | None
) -> WireColumn:
    """Return the column as in a table map, from its catalogue description."""
    if data_type in _PLAIN:
        words = column_type.lower()
        return WireColumn(_PLAIN[data_type], is_unsigned="unsigned" in words or "zerofill" in words)
    if data_type in _TIMED:
        return WireColumn(_TIMED[data_type], int(fraction or 0))
    if data_type in _TEXTS:
        return WireColumn(_TEXTS[data_type], int(octets or 0))
    if data_type in _BLOBS:
        return WireColumn(tm.BLOB, _BLOBS[data_type])
    if data_type in _GEOMETRIES:
        return WireColumn(tm.GEOMETRY, 4)
    if data_type in ("enum", "set"):
        labels = tuple(_unquoted(label).encode() for label in _LABEL.findall(column_type))
        if data_type == "enum":
            return WireColumn(tm.ENUM, 1 if len(labels) < 256 else 2, labels=labels)
        size = (len(labels) + 7) // 8
        return WireColumn(tm.SET, 8 if size > 4 else size, labels=labels)
    match data_type:
        case "float":
            return WireColumn(tm.FLOAT, 4)
        case "double":
            return WireColumn(tm.DOUBLE, 8)
        case "decimal":
            return WireColumn(tm.NEWDECIMAL, int(precision or 0), int(scale or 0))
        case "bit":
            return WireColumn(tm.BIT, int(precision or 1))
        case "json":
            return WireColumn(tm.JSON, 4)
    raise StartRefusedError(
        f"a column of type {data_type} cannot be captured yet",
        hint="take its table out of `tables`, or change the column's type; and report it",
    )


def _unquoted(label: str) -> str:
    written = {"n": "\n", "r": "\r", "0": "\0", "t": "\t", "b": "\b", "Z": "\x1a"}
    return re.sub(
        r"''|\\(.)", lambda m: written.get(m.group(1), m.group(1)) if m.group(1) else "'", label, flags=re.DOTALL
    )
