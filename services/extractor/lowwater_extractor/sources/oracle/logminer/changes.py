"""Converts LogMiner's statements to frames. A change is stored as SQL text until its transaction has committed."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import LogUnknownError, LowwaterError
from lowwater_extractor.api import Encoders, Frame
from lowwater_extractor.change_batch import IteratedChanges
from lowwater_extractor.sources.oracle.ddl import Ddl, Name
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.logminer.literals import Convert, converter
from lowwater_extractor.sources.oracle.logminer.sql_redo import Literal, Named, Statement, parse, parse_locator
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.rows.row_decoder import is_logged, without_key
from lowwater_extractor.sources.oracle.rows.values import MISSING
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn

#: about how many bytes more a frame has than the statement
FRAME_MORE_BYTES = 16

#: op, the table's number, length of the row id, number of columns that are not in the log
_HEAD = struct.Struct("<cIBB")
_NO_ROW = "AAAAAAAAAAAAAAAAAA"


class Tables(Protocol):
    """The part of the dictionary that LogMiner's rows need."""

    def find(self, owner: str, table: str, scn: Scn) -> TableVersion | None:
        """None: not captured."""
        ...

    def is_captured(self, object_number: int) -> bool:
        """Whether DATA_OBJ# is that of a captured table, partition or subpartition."""
        ...

    def name_of(self, object_number: int) -> tuple[str, str] | None:
        """The captured table with this object, as of the last read of the dictionary."""
        ...

    def named(self, names: Iterable[Name | None], statement: Ddl) -> set[str]:
        """The captured tables that a statement affects."""
        ...

    def after(self, names: Iterable[str], statement: Ddl, scn: Scn) -> dict[str, str]:
        """Read the tables again after a statement that committed at `scn`: tables that are stale → why."""
        ...


class Kept(NamedTuple):
    """One change of an open transaction."""

    op: str
    table: int
    row_id: str
    #: indexes of the table's columns: LOBs that were written piece by piece
    missing: tuple[int, ...]
    sql: str

    def pack(self) -> bytes:
        row_id = self.row_id.encode()
        head = _HEAD.pack(self.op.encode(), self.table, len(row_id), len(self.missing))
        missing = b"".join(place.to_bytes(2, "little") for place in self.missing)
        return head + row_id + missing + self.sql.encode("utf-8", "surrogatepass")


def unpack(raw: bytes) -> Kept:
    op, table, width, count = _HEAD.unpack_from(raw)
    at = _HEAD.size + width
    end = at + 2 * count
    missing = tuple(int.from_bytes(raw[i : i + 2], "little") for i in range(at, end, 2))
    return Kept(op.decode(), table, raw[_HEAD.size : at].decode(), missing, str(raw[end:], "utf-8", "surrogatepass"))


def names_row(row_id: str | None) -> bool:
    """Whether it is a row id. For index-organized tables LogMiner writes one of zeros."""
    return bool(row_id) and row_id != _NO_ROW


@dataclass(slots=True)
class _Way:
    """How statements on one table version are converted to frames."""

    table: TableVersion
    #: with its version number
    schema: TableSchema
    encoder: TableEncoder
    #: column → index in the row, and the converter of its literals; None: never in the log
    places: dict[str, tuple[int, Convert | None]]
    #: columns that are not published: hidden ones
    passed: frozenset[str]
    #: columns that are never in the log
    unreadable: tuple[str, ...]
    #: indexes that every change must contain: the key's, or without a key all columns that are logged
    needed: frozenset[int]


class ChangeMaker:
    """Numbers table versions, and converts stored changes to frames."""

    def __init__(self, source: str, tables: Tables, encoders: Encoders, lobs: LobFetch | None = None) -> None:
        self._source = source
        self._tables = tables
        self._encoders = encoders
        #: None: LOBs that are not in the log are `unchanged`
        self._lobs = lobs
        self._numbers: dict[tuple[TableSchema, tuple[OracleColumn, ...]], int] = {}
        self._known: list[TableVersion] = []
        self._ways: dict[int, _Way] = {}
        #: each table's last version that had a change
        self.seen: dict[str, TableSchema] = {}
        self._seen_number: dict[str, int] = {}

    def number(self, owner: str, table: str, scn: Scn) -> int | None:
        """The number of the table's version at `scn`; None: the table is not captured."""
        found = self._tables.find(owner, table, scn)
        if found is None:
            return None
        key = (found.schema, found.columns)
        if key not in self._numbers:
            self._numbers[key] = len(self._known)
            self._known.append(found)
        return self._numbers[key]

    def meet(self, owner: str, table: str, scn: Scn) -> None:
        """Add the version of an altered table to `seen`: rows get a new column's default without being logged."""
        number = self.number(owner, table, scn)
        if number is not None:
            self._see(number, self._encoders.versioned(self._known[number].schema))

    def _see(self, number: int, schema: TableSchema) -> None:
        """Frames may be made after a later DDL was processed: an older version does not replace a newer one."""
        if number >= self._seen_number.get(schema.full_name, 0):
            self._seen_number[schema.full_name] = number
            self.seen[schema.full_name] = schema

    def place(self, number: int, column: str) -> int | None:
        """The index of a column in its table; None: it is not published."""
        for at, each in enumerate(self._known[number].schema.columns):
            if each.name == column:
                return at
        return None

    def key_of(self, number: int, named: Named) -> tuple[Literal, ...]:
        """The key's literals in a statement, None for those that it lacks: identifies rows without a row id."""
        schema = self._known[number].schema
        return tuple(named.get(name) for name in (schema.key or [column.name for column in schema.columns]))

    def frames(self, rows: Iterable[bytes], ts_us: int, scn: Scn) -> Iterator[Frame]:
        last = None
        for raw in rows:
            kept = unpack(raw)
            way = self._ways.get(kept.table) or self._learn(kept.table)
            if way is not last:
                self._see(kept.table, way.schema)
                last = way
            yield way.encoder.header, self._body(way, kept, ts_us, scn)

    def _learn(self, number: int) -> _Way:
        table = self._known[number]
        at = {column.name: place for place, column in enumerate(table.schema.columns)}
        places = {c.name: (at[c.name], converter(c)) for c in table.columns if c.name in at}
        unreadable = tuple(name for name, (_, convert) in places.items() if convert is None)
        passed = frozenset(c.name for c in table.columns if c.name not in at)
        needed = table.key or [c.name for c in table.visible if is_logged(c)]
        schema = self._encoders.versioned(table.schema)
        way = _Way(
            table, schema, self._encoders.encoder(schema), places, passed, unreadable,
            frozenset(at[name] for name in needed),
        )  # fmt: skip
        self._ways[number] = way
        return way

    def _body(self, way: _Way, kept: Kept, ts_us: int, scn: Scn) -> bytes:
        if kept.op == "t":
            return way.encoder.body("t", None, None, ts_us)
        try:
            if kept.op == "l":
                locator = parse_locator(kept.sql)
                return self._update(way, {}, locator.where, kept.missing, ts_us, scn)
            statement = parse(kept.sql)
            if statement.op != kept.op:
                raise self._unfit(way, f"operation {kept.op}, but the statement is {statement.op}")
            if statement.op == "c":
                return self._insert(way, statement, kept.missing, ts_us, scn)
            if statement.op == "u":
                return self._update(way, statement.values, statement.where, kept.missing, ts_us, scn)
            before, told, _ = self._row(way, statement.where)
            self._check_key(way, "a delete", before, told)
            return way.encoder.body("d", before, None, ts_us)
        except LowwaterError as error:
            if error.source is None:
                error.source = self._source
                error.what = f"{way.schema.full_name}: {error.what}"
            raise

    def _insert(self, way: _Way, statement: Statement, missing: Sequence[int], ts_us: int, scn: Scn) -> bytes:
        row, told, lost = self._row(way, statement.values)
        if way.table.key:
            # without a key, a column that is not in the statement is NULL
            self._check_key(way, "an insert", row, told)
        if not missing and not way.unreadable and not lost:
            return way.encoder.insert(row, ts_us)
        lacking = self._fetched(way, row, sorted({*missing, *lost}), scn)
        unchanged = [*way.unreadable, *(way.schema.columns[place].name for place in lacking)]
        return way.encoder.body("c", None, row, ts_us, list(dict.fromkeys(unchanged)))

    def _update(self, way: _Way, new: Named, old: Named, missing: Sequence[int], ts_us: int, scn: Scn) -> bytes:
        before, told, _ = self._row(way, old)
        after = list(before)
        changed, set_places, lost = self._row(way, new)
        for place in set_places:
            after[place] = changed[place]
        told |= set_places
        self._check_key(way, "an update", after, told)
        missing = sorted({*missing, *lost})
        told |= set(missing)
        told -= set(self._fetched(way, after, missing, scn))
        # a column that the statement has neither as old nor as new value is unchanged, or not in the log at all
        unchanged = [column.name for place, column in enumerate(way.schema.columns) if place not in told]
        return way.encoder.body("u", before, after, ts_us, unchanged)

    def _fetched(self, way: _Way, row: list[Any], missing: Sequence[int], scn: Scn) -> Sequence[int]:
        """Read LOBs that are not in the log into `row`; return the indexes of those that are still missing."""
        for place in missing:
            row[place] = None
        if not missing or self._lobs is None:
            return missing
        readable = [place for place in missing if way.schema.columns[place].name not in way.unreadable]
        names = [way.schema.columns[place].name for place in readable]
        if not names or not self._lobs.fill(way.table, names, row, scn):
            return missing
        return [place for place in missing if place not in readable]

    def _check_key(self, way: _Way, change: str, row: list[Any], told: set[int]) -> None:
        """Refuse a statement without the key: it would be published as another row, with a null key."""
        if not way.needed <= told or (way.table.key and any(row[place] is None for place in way.needed)):
            raise without_key(way.table, change)

    def _row(self, way: _Way, named: Named) -> tuple[list[Any], set[int], list[int]]:
        """The values by column, the indexes that the statement has, and those that it has without a value."""
        row: list[Any] = [None] * len(way.schema.columns)
        told: set[int] = set()
        lost: list[int] = []
        for name, literal in named.items():
            found = way.places.get(name)
            if found is None:
                if name in way.passed:
                    continue
                raise self._unfit(way, f"column {name!r}, which the dictionary does not have")
            place, convert = found
            if convert is None:
                continue
            value = None if literal is None else convert(literal)
            if value is MISSING:
                lost.append(place)
                continue
            row[place] = value
            told.add(place)
        return row, told, lost

    def _unfit(self, way: _Way, what: str) -> LogUnknownError:
        return LogUnknownError(
            f"{way.schema.full_name}: LogMiner's statement has {what}",
            source=self._source,
            hint="the table was altered: LogMiner shows old rows by the newest dictionary. Capture by redo files, "
            "or let the source catch up before tables are altered",
        )


class Changes(IteratedChanges):
    """A transaction's frames; each iteration creates them again."""

    __slots__ = ("_maker", "_rows", "_scn", "_ts_us")

    def __init__(self, maker: ChangeMaker, rows: Iterable[bytes], ts_us: int, scn: Scn) -> None:
        self._maker = maker
        self._rows = rows
        self._ts_us = ts_us
        self._scn = scn

    def __iter__(self) -> Iterator[Frame]:
        return self._maker.frames(self._rows, self._ts_us, self._scn)
