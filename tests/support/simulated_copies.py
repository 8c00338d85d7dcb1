"""The part of `SimulatedOracle` that copies ask: rows in the bytes that Oracle stores, as they were at an SCN.

It answers the SQL that a copy sends, and nothing else: each expression is worked out from the stored bytes by an
account of Oracle's functions of its own.
"""

from __future__ import annotations

import datetime as dt
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import oracledb
import pyarrow as pa

from lowwater.errors import SourceError
from lowwater_extractor.sources.oracle.connect import as_source_error
from lowwater_extractor.sources.oracle.dictionary import query as q
from lowwater_extractor.sources.oracle.rows.number_values import number_to_decimal
from lowwater_extractor.sources.oracle.rows.value_writing import rowid_parts
from lowwater_extractor.sources.oracle.rows.values import rowid, urowid
from lowwater_extractor.sources.oracle.snapshot import view as v
from lowwater_extractor.sources.oracle.types import CHARACTERS, OracleColumn, OracleType
from tests.support.simulated_oracle import Rows, SimulatedOracle

FOREVER = 1 << 62
_QUERY = re.compile(
    r'SELECT (?:/\*.*?\*/ )?(?P<items>.*) FROM "BANK"\."(?P<table>\w+)" AS OF SCN :scn(?: t)? WHERE (?P<where>.*)'
)
_MOMENT = r'(?:SYS_EXTRACT_UTC\()?"(?P<name>\w+)"\)?'
_FORMAT = r"'SYYYY-MM-DD\"T\"HH24:MI:SS(?P<fraction>\.FF9)?'"
_LITERAL = r"(?:DATE|TIMESTAMP) '1583-01-01(?: 00:00:00)?'"

Raw = bytes | None


@dataclass
class StoredRow:
    rowid: str
    values: Mapping[str, Raw]
    since: int
    until: int = FOREVER


@dataclass
class StoredTable:
    object_id: int
    columns: list[OracleColumn]
    key: tuple[str, ...]
    rows: list[StoredRow] = field(default_factory=list)
    #: data object, file, block, blocks, bytes
    extents: Rows = field(default_factory=list)
    altered: int = 0
    counted: int | None = None


class SimulatedCopies(SimulatedOracle):
    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, StoredTable] = {}
        #: undo of what was overwritten before this SCN is gone
        self.undo_from = 0
        self.closed = 0

    # --- what happens in it

    def insert_row(self, table: str, place: str, values: Mapping[str, Raw]) -> None:
        self.tables[table].rows.append(StoredRow(place, values, self.tick()))

    def delete_row(self, table: str, place: str) -> None:
        (row,) = [row for row in self.tables[table].rows if row.rowid == place and row.until == FOREVER]
        row.until = self.tick()

    # --- its dictionary

    def ask(self, sql: str, **binds: Any) -> Rows:
        found = self._catalogue(sql, **binds)
        if found is not None:
            self.asked.append(sql)
            return found
        if "COUNT(*)" in sql:
            self.asked.append(sql)
            return [(len(self._selected(sql, binds)[1]),)]
        return super().ask(sql, **binds)

    def _catalogue(self, sql: str, **binds: Any) -> Rows | None:
        tables = {name: table for name, table in self.tables.items() if table.columns}
        fixed: dict[str, Rows] = {
            q.SQL_OWNERS: [("BANK", 107)],
            q.SQL_CHARSETS: [("NLS_CHARACTERSET", "AL32UTF8"), ("NLS_NCHAR_CHARACTERSET", "AL16UTF16")],
            q.SQL_ZONE: [("+00:00",)],
            q.SQL_OBJECTS: [(name, table.object_id, table.object_id, 2) for name, table in tables.items()],
            q.SQL_TABLES: [(table.object_id, 0) for table in tables.values()],
            q.SQL_COLUMNS: [
                (
                    table.object_id, c.name, at, at, c.type, c.length, c.precision, c.scale, int(not c.nullable), 0,
                    c.charset_form, at,
                )
                for table in tables.values() for at, c in enumerate(table.columns, 1)
            ],
            q.SQL_DEFAULTS: [],
            q.SQL_CONSTRAINTS: [
                (t.object_id, t.object_id, 2, "PK", 1, 0, 1 + [c.name for c in t.columns].index(name))
                for t in tables.values() for name in t.key
            ],
            q.SQL_COMPRESSED: [],
            q.SQL_UNLOGGED: [],
            q.SQL_HIDDEN_LOBS: [],
        }  # fmt: skip
        if sql in (v.SQL_EXTENTS, v.SQL_ROWS):
            table = self.tables[binds["name"]]
            return table.extents if sql == v.SQL_EXTENTS else [(table.counted,)]
        return fixed.get(sql)

    # --- its rows

    def frames(self, sql: str, schema: Any, rows_max: int, **binds: Any) -> Iterator[Any]:
        table, rows, items = self._selected(sql, binds)
        by_name = {column.name: column for column in table.columns}
        made = [_expression(item, by_name, type_.type) for item, type_ in zip(items, schema, strict=True)]
        # an empty one comes first, as the driver gives it where there are no rows
        for at in range(0, max(1, len(rows)), rows_max):
            arrays = [[make(row.values) for row in rows[at : at + rows_max]] for make in made]
            yield pa.table([pa.array(a, f.type) for a, f in zip(arrays, schema, strict=True)], schema=schema)

    def _selected(self, sql: str, binds: dict[str, Any]) -> tuple[StoredTable, list[StoredRow], list[str]]:
        parts = _QUERY.fullmatch(sql)
        if parts is None:
            raise SourceError(f"SimulatedCopies was not taught to answer {sql!r}")
        table, scn = self.tables.get(parts["table"]), binds["scn"]
        if table is None or not table.columns:
            raise ora("ORA-00942")
        if scn < table.altered:
            raise ora("ORA-01466")
        rows = [row for row in table.rows if row.since <= scn < row.until and _is_in(row, parts["where"], binds)]
        touched = [r for r in table.rows if scn < r.until < self.undo_from and _is_in(r, parts["where"], binds)]
        if touched and "ROWNUM < 1" not in parts["where"]:
            raise ora("ORA-01555")
        items = re.split(r" C\d+(?:, |$)", parts["items"])[:-1]
        return table, sorted(rows, key=lambda row: rowid_parts(row.rowid)), items

    def close(self) -> None:
        self.closed += 1


def ora(code: str) -> SourceError:
    error = SimpleNamespace(full_code=code, message=f"{code}: as the server says it", isrecoverable=False)
    return as_source_error(oracledb.DatabaseError(error), "bank", "query")


def _is_in(row: StoredRow, where: str, binds: dict[str, Any]) -> bool:
    place = rowid_parts(row.rowid)
    low, high = binds.get("low"), binds.get("high")
    assert ("CHARTOROWID(:low)" in where) == (low is not None)
    assert ("CHARTOROWID(:high)" in where) == (high is not None)
    return (low is None or place >= rowid_parts(low)) and (high is None or place < rowid_parts(high))


# --- expressions ---------------------------------------------------------------------------------------------------


def _expression(item: str, columns: dict[str, OracleColumn], type_: pa.DataType) -> Callable[[Mapping[str, Raw]], Any]:
    if item == "1":
        return lambda row: 1
    for pattern, make in _FORMS:
        found = re.fullmatch(pattern, item)
        if found is not None:
            column = columns[found["name"]]
            convert = make(column, found, type_)
            return lambda row: None if (raw := row[column.name]) is None else convert(raw)
    raise SourceError(f"SimulatedCopies does not know the expression {item!r}")


def _natural(column: OracleColumn, _: re.Match[str], type_: pa.DataType) -> Callable[[bytes], Any]:
    if column.type == OracleType.NUMBER:
        if pa.types.is_integer(type_):
            return lambda raw: int(number_to_decimal(raw))
        return number_to_decimal
    if column.type in (OracleType.BINARY_FLOAT, OracleType.BINARY_DOUBLE):
        return _ieee
    if column.type == OracleType.BOOLEAN:
        return lambda raw: raw == b"\x01"
    if column.type in CHARACTERS:
        return lambda raw: raw.decode("utf-16-be" if column.charset_form == 2 else "utf-8")
    return bytes


def _ieee(raw: bytes) -> float:
    plain = bytes([raw[0] & 0x7F]) + raw[1:] if raw[0] & 0x80 else bytes(b ^ 0xFF for b in raw)
    found: float = struct.unpack(">f" if len(raw) == 4 else ">d", plain)[0]
    return found


def _parts(raw: bytes) -> tuple[int, int, int, int, int, int, int]:
    label = (raw[0] - 100) * 100 + raw[1] - 100
    nanoseconds = int.from_bytes(raw[7:11]) if len(raw) >= 11 else 0
    return label, raw[2], raw[3], raw[4] - 1, raw[5] - 1, raw[6] - 1, nanoseconds


def _shown(raw: bytes, fraction: Any) -> str:
    year, month, day, hour, minute, second, nanoseconds = _parts(raw)
    text = f"{'-' if year < 0 else ' '}{abs(year):04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"
    return f"{text}.{nanoseconds:09d}" if fraction else text


def _new(raw: bytes) -> dt.datetime | None:
    *when, nanoseconds = _parts(raw)
    return None if when[0] < 1583 else dt.datetime(*when, nanoseconds // 1000)  # type: ignore[call-arg, arg-type]


def _old(_: OracleColumn, found: re.Match[str], __: pa.DataType) -> Callable[[bytes], str | None]:
    return lambda raw: _shown(raw, found["fraction"]) if _new(raw) is None else None


def _interval(column: OracleColumn, _: re.Match[str], __: pa.DataType) -> Callable[[bytes], str]:
    def shown(raw: bytes) -> str:
        first = int.from_bytes(raw[:4]) - 0x8000_0000
        if column.type == OracleType.INTERVAL_YM:
            sign = "-" if first < 0 or raw[4] < 60 else "+"
            return f"{sign}{abs(first):02d}-{abs(raw[4] - 60):02d}"
        nanoseconds = int.from_bytes(raw[7:]) - 0x8000_0000
        parts = [part - 60 for part in raw[4:7]]
        sign = "-" if min(first, nanoseconds, *parts) < 0 else "+"
        hours, minutes, seconds = map(abs, parts)
        return f"{sign}{abs(first):02d} {hours:02d}:{minutes:02d}:{seconds:02d}.{abs(nanoseconds):09d}"

    return shown


_FORMS: Sequence[tuple[str, Callable[[OracleColumn, re.Match[str], pa.DataType], Callable[[bytes], Any]]]] = (
    (r'"(?P<name>\w+)"', _natural),
    (r'UTL_RAW\.CAST_FROM_NUMBER\("(?P<name>\w+)"\)', lambda c, m, t: bytes),
    (r'ROWIDTOCHAR\("(?P<name>\w+)"\)', lambda c, m, t: rowid if c.type == OracleType.ROWID else urowid),
    (r'TO_CHAR\("(?P<name>\w+)"\)', _interval),
    (rf"TO_CHAR\({_MOMENT}, {_FORMAT}\)", lambda c, m, t: lambda raw: _shown(raw, m["fraction"])),
    (
        rf"CASE WHEN {_MOMENT} >= {_LITERAL} THEN {_MOMENT.replace('?P<name>', '')} END",
        lambda c, m, t: _new,
    ),
    (
        rf"CASE WHEN {_MOMENT.replace('?P<name>', '')} < {_LITERAL} THEN TO_CHAR\({_MOMENT}, {_FORMAT}\) END",
        _old,
    ),
)
