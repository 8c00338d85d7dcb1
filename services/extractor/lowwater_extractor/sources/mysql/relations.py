"""Converts table maps to table versions with an encoder and generated code that reads their rows.

A table map precedes the first row of each statement, so a table version starts at the correct position. Properties that
the table map lacks are queried from the catalogue, which has the current definition: it must match the table map.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from lowwater.codec.encoder import TableEncoder, truncate_body
from lowwater.codec.table import Column, TableSchema
from lowwater.errors import CodecError, LogUnknownError, LowwaterError
from lowwater_extractor._native.row_bytes import take_rows
from lowwater_extractor.api import Encoders, Frame, SeenVersions
from lowwater_extractor.row_program import CREATE, DELETE, UPDATE, program
from lowwater_extractor.sources.mysql.ddl.foreign_keys import ForeignKeys
from lowwater_extractor.sources.mysql.ddl.parents import Parent
from lowwater_extractor.sources.mysql.position import version_of
from lowwater_extractor.sources.mysql.types import ColumnCode, Wanted, column_code
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders, check_utf8
from lowwater_extractor.sources.mysql.wire.row_code import InsertRows, ReadRow, compile_inserts, compile_read
from lowwater_extractor.sources.mysql.wire.table_map import TableMap, WireColumn

#: the first MySQL version whose signedness metadata has a bit for YEAR columns
YEAR_IN_SIGNS = (8, 0, 29)

#: raised by converters for bytes that are not valid for the type
_ERRORS = (CodecError, ValueError, ArithmeticError, IndexError, struct.error)

_SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip

#: types before MySQL 5.6, which the catalogue does not distinguish from the current ones
_OLD = {tm.DATETIME: tm.DATETIME2, tm.TIMESTAMP: tm.TIMESTAMP2, tm.TIME: tm.TIME2}


_log = structlog.get_logger()


class Catalogue(Protocol):
    """Queries of the server's catalogue."""

    def table(self, namespace: str, table: str) -> TableMap | None:
        """Return the current definition with names, labels and key; None if the table does not exist."""
        ...

    def filled(self, namespace: str, table: str) -> set[str]:
        """Return the columns that get a value other than NULL if an INSERT omits them."""
        ...


class Relation:
    """A table version with the readers and encoders of its changes."""

    def __init__(
        self, table: TableSchema, encoder: TableEncoder, codes: Sequence[ColumnCode], shown: Sequence[int],
        names: Sequence[str], filled: Callable[[], set[str]],
    ) -> None:  # fmt: skip
        self.table = table
        self.encoder = encoder
        self.width = len(codes)
        self._codes = codes
        self._shown = shown
        self._names = names
        self._filled = filled
        size = (self.width + 7) // 8
        self._bitmap_bytes = size
        places = {i: place for place, i in enumerate(shown)}
        #: fast path for complete rows; None if a column type has none
        self._quick = program(encoder, [code.quick for code in codes], [places.get(i) for i in range(self.width)])
        self._insert_rows: InsertRows = compile_inserts(codes, shown, encoder.header, encoder.insert)
        self._reads: dict[bytes, tuple[ReadRow, frozenset[int]]] = {}
        #: bitmaps of complete rows; unused bits may be set or not
        spare = 0xFF >> -self.width % 8
        self._whole = frozenset((b"\xff" * size, b"\xff" * (size - 1) + bytes([spare])))

        count = bytes([self.width]) if self.width < 251 else b"\xfc" + self.width.to_bytes(2, "little")
        #: start of an insert's rows as servers write it: column count, and a bitmap with all bits set
        self._whole_insert = count + b"\xff" * size
        self._whole_insert_bytes = len(self._whole_insert)

    # -- events ------------------------------------------------------------------------------------------

    def inserts_whole(self, e: bytes, at: int, end: int, out: list[Frame], ts_us: int) -> int:
        """Fast path of `inserts`. Return -1 if the rows are incomplete or invalid: the caller then uses `inserts`."""
        first = at + self._whole_insert_bytes
        if e[at:first] != self._whole_insert:
            return -1
        if (size := self._take(CREATE, e, first, end, out, ts_us)) >= 0:
            return size
        before = len(out)
        try:
            return self._insert_rows(e, first, end, out, ts_us)
        except _ERRORS:
            del out[before:]
            return -1

    def _take(self, op: int, e: bytes, at: int, end: int, out: list[Frame], ts_us: int) -> int:
        """Convert complete rows with compiled code. Return -1 if that is not possible; then nothing was added."""
        if (q := self._quick) is None:
            return -1
        before = len(out)
        size = take_rows(op, e, at, end, q.code, q.columns, q.header, ts_us, q.out, q.room, out)
        if size < 0:
            del out[before:]
        return size

    def inserts(self, e: bytes, at: int, end: int, out: list[Frame], ts_us: int) -> int:
        """Append the inserts to `out` and return their bytes. `at`: offset of the column count in the event."""
        at, bitmap = self._bitmap(e, at)
        try:
            if bitmap in self._whole:
                return self._insert_rows(e, at, end, out, ts_us)
            read, present = self._read(bitmap)
            self._check_defaults(present)
            size = 0
            while at < end:
                row, at = read(e, at)
                size += self._add(out, self.encoder.body("c", None, row, ts_us))
        except _ERRORS as error:
            raise self._explain(e, at, end, [bitmap], error) from error
        self._check_end(at, end)
        return size

    def deletes(self, e: bytes, at: int, end: int, out: list[Frame], ts_us: int) -> int:
        at, bitmap = self._bitmap(e, at)
        if bitmap in self._whole and (size := self._take(DELETE, e, at, end, out, ts_us)) >= 0:
            return size
        try:
            read, _ = self._read(bitmap)
            body = self.encoder.delete if bitmap in self._whole else self._delete_part
            size = 0
            while at < end:
                row, at = read(e, at)
                size += self._add(out, body(row, ts_us))
        except _ERRORS as error:
            raise self._explain(e, at, end, [bitmap], error) from error
        self._check_end(at, end)
        return size

    def _delete_part(self, row: Sequence[Any], ts_us: int) -> bytes:
        return self.encoder.body("d", row, None, ts_us)

    def updates(self, e: bytes, at: int, end: int, out: list[Frame], ts_us: int) -> int:
        at, old = self._bitmap(e, at)
        new = e[at : at + self._bitmap_bytes]
        at += self._bitmap_bytes
        is_whole = old in self._whole and new in self._whole
        if is_whole and (size := self._take(UPDATE, e, at, end, out, ts_us)) >= 0:
            return size
        try:
            read_old, in_old = self._read(old)
            read_new, in_new = self._read(new)
            # columns in neither row are missing in the log; columns only in the old row are unchanged
            missing = [self._names[i] for i in self._shown if i not in in_new and i not in in_old]
            kept = [place for place, i in enumerate(self._shown) if i not in in_new and i in in_old]
            update, body, size = self.encoder.update, self.encoder.body, 0
            while at < end:
                before, at = read_old(e, at)
                after, at = read_new(e, at)
                if is_whole:
                    size += self._add(out, update([*before, *after], ts_us))
                    continue
                for place in kept:
                    after[place] = before[place]
                size += self._add(out, body("u", before, after, ts_us, missing))
        except _ERRORS as error:
            raise self._explain(e, at, end, [old, new], error) from error
        self._check_end(at, end)
        return size

    def _add(self, out: list[Frame], body: bytes) -> int:
        out.append((self.encoder.header, body))
        return len(body)

    # -- parts -------------------------------------------------------------------------------------------

    def _bitmap(self, e: bytes, at: int) -> tuple[int, bytes]:
        count, at = tm.packed(e, at)
        if count != self.width:
            raise LogUnknownError(
                f"rows with {count} columns of {self.table.full_name}, which has {self.width}",
                source=self.table.source, hint="report it with the server's version",
            )  # fmt: skip
        return at + self._bitmap_bytes, e[at : at + self._bitmap_bytes]

    def _read(self, bitmap: bytes) -> tuple[ReadRow, frozenset[int]]:
        found = self._reads.get(bitmap)
        if found is None:
            present = [i for i in range(self.width) if bitmap[i >> 3] >> (i & 7) & 1]
            found = self._reads[bitmap] = compile_read(self._codes, self._shown, present), frozenset(present)
        return found

    def _check_end(self, at: int, end: int) -> None:
        if at != end:
            raise LogUnknownError(
                f"rows of {self.table.full_name} do not end where their event does",
                source=self.table.source, hint="report it with the server's version",
            )  # fmt: skip

    def _check_defaults(self, present: frozenset[int]) -> None:
        """Raise if an insert omits columns with a default other than NULL (binlog_row_image=MINIMAL)."""
        absent = {self._names[i] for i in self._shown if i not in present}
        if lost := sorted(absent & self._filled()):
            raise LogUnknownError(
                f"an insert into {self.table.full_name} without {', '.join(lost)}: the log does not have the defaults",
                source=self.table.source,
                hint="SET GLOBAL binlog_row_image = FULL; or give all columns in each INSERT",
            )

    def _explain(self, e: bytes, at: int, end: int, bitmaps: list[bytes], error: Exception) -> LowwaterError:
        """Find the column that failed. The message does not contain the value."""
        if isinstance(error, CodecError) and error.source:
            return error
        where = self.table.full_name
        number = 0
        while at < end:
            bitmap = bitmaps[number % len(bitmaps)]
            number += 1
            for i in range(self.width):
                if not bitmap[i >> 3] >> (i & 7) & 1:
                    continue
                # read the columns up to this one
                present = [j for j in range(i + 1) if bitmap[j >> 3] >> (j & 7) & 1]
                try:
                    read_alone(self._codes, bitmap, present, e, at)
                except _ERRORS as cause:
                    what = cause.what if isinstance(cause, CodecError) else "its bytes are not valid for its type"
                    hint = (isinstance(cause, CodecError) and cause.hint) or "report it with the server's version"
                    return CodecError(
                        f"{where}.{self._names[i]}: {what}", source=self.table.source, thread=1, hint=hint
                    )
            _, at = self._read(bitmap)[0](e, at)
        return CodecError(f"{where}: {error}", source=self.table.source, thread=1)


def read_alone(codes: Sequence[ColumnCode], bitmap: bytes, present: Sequence[int], e: bytes, at: int) -> None:
    """Read and convert the first columns of a row. Raises if a value is not valid."""
    all_present = [j for j in range(len(codes)) if bitmap[j >> 3] >> (j & 7) & 1]
    nulls = e[at : at + (len(all_present) + 7) // 8]
    at += len(nulls)
    for place, j in enumerate(all_present[: len(present)]):
        if nulls[place >> 3] >> (place & 7) & 1:
            continue
        code = codes[j]
        if code.format:
            (value,) = struct.unpack_from(f"<{code.format}", e, at)
            at += struct.calcsize(f"<{code.format}")
        else:
            size = int.from_bytes(e[at : at + code.length_bytes], "little")
            value = e[at + code.length_bytes : at + code.length_bytes + size]
            at += code.length_bytes + size
            if len(value) != size:
                raise IndexError("cut off")
        if code.convert is not None:
            code.convert(value)
        if code.is_utf8:
            check_utf8(value)


class RelationMaker:
    def __init__(
        self, source: str, catalogue: Catalogue, decoders: Decoders, encoders: Encoders, wanted: Wanted,
        is_captured: Callable[[str], bool], *, is_mariadb: bool = False, version: str = "", needs_key: bool = False,
        is_copied: bool = False,
    ) -> None:  # fmt: skip
        """`needs_key`: leave out new tables without a primary key; a captured table that loses its key is an error.

        `is_copied`: a captured table that had no key for a time, and has one now, is stale instead.
        """
        self._source = source
        self._catalogue = catalogue
        self._decoders = decoders
        self._encoders = encoders
        self._wanted = wanted
        self.is_captured = is_captured
        self._needs_key = needs_key
        self._is_copied = is_copied
        #: see `take_keyless`
        self._keyless = ""
        self._left_out: set[str] = set()
        self._is_mariadb = is_mariadb
        self._counts_year = is_mariadb
        self.written_by(version)
        #: last version by table
        self.seen: dict[str, TableSchema] = SeenVersions()

    def written_by(self, version: str) -> None:
        """Set the version of the server that wrote the following events: the format depends on it."""
        self._counts_year = self._is_mariadb or version_of(version) >= YEAR_IN_SIGNS

    def relation(self, body: bytes) -> Relation | None:
        """Return the relation for a table map; None if the table is not captured."""
        namespace, table, _ = tm.table_name(body)
        if not self.is_captured(f"{namespace}.{table}"):
            return None
        if "." in namespace:
            raise LogUnknownError(
                f"the database {namespace} has a dot in its name", source=self._source,
                hint="the names of its tables would be ambiguous: remove them from `tables`",
            )  # fmt: skip
        found = self._parsed(body)
        return None if _is_sequence(found) or not self._has_key(found) else self._make(found)

    def _has_key(self, found: TableMap) -> bool:
        name = f"{found.namespace}.{found.table}"
        if found.key or not self._needs_key:
            return True
        if name in self.seen or self._encoders.last_header(name) is not None:
            now = self._catalogue.table(found.namespace, found.table) if self._is_copied else None
            if now is not None and now.key:
                self._keyless = name
                return False
            raise LogUnknownError(
                f"{name} has lost its primary key, and rows of it are changed", source=self._source,
                hint="set without_key: stream_only to continue; or add a key again, and reset the source's position",
            )  # fmt: skip
        if name not in self._left_out:
            self._left_out.add(name)
            _log.warning("a new table without a key is not captured", source=self._source, table=name)
        return False

    def take_keyless(self) -> str:
        """Return the table of the last `relation`, if its rows cannot be identified and it must be copied again."""
        name, self._keyless = self._keyless, ""
        return name

    def _parsed(self, body: bytes) -> TableMap:
        found = tm.parse(body, counts_year=self._counts_year, counts_geometry=self._is_mariadb)
        return found if found.is_full else self._filled_in(found)

    def parent(self, body: bytes, keys: ForeignKeys) -> Parent | None:
        namespace, table, _ = tm.table_name(body)
        name = f"{namespace}.{table}"
        if not keys.is_parent(name):
            return None
        codes: list[ColumnCode] = []
        names: list[str] = []
        try:
            found = self._parsed(body)
            codes = [column_code(column, f"{name}.{column.name}", self._decoders, Wanted()) for column in found.columns]
            names = [column.name for column in found.columns]
        except LowwaterError as error:
            _log.info(
                "every update of a parent is treated as a key change", source=self._source, table=name, why=error.what
            )
        return Parent(name, keys, codes, names)

    def statement_text(self, data: bytes, collation: int) -> str:
        """Decode a statement, which is in the character set of the client."""
        charset = self._decoders.charset(collation) if collation else "utf8mb4"
        try:
            decoder = self._decoders.decoder(charset)
            return data.decode(errors="surrogateescape") if decoder is None else str(decoder(data))
        except CodecError as error:
            raise LogUnknownError(
                f"a statement in the character set {charset} that cannot be read", source=self._source, hint=error.hint
            ) from error

    # -- tables without a table map ----------------------------------------------------------------------

    def captured_in(self, namespace: str) -> list[str]:
        known = {*self.seen, *self._encoders.known()}
        return sorted(name for name in known if name.partition(".")[0] == namespace and self.is_captured(name))

    def truncated(self, table: str, ts_us: int) -> Frame | None:
        """Return a truncate change with the last published version, or the current one; None for an unknown table."""
        if (version := self.seen.get(table)) is not None:
            encoder = self._encoders.encoder(version)
            return encoder.header, encoder.body("t", None, None, ts_us)
        if (header := self._encoders.last_header(table)) is not None:
            return header, truncate_body(ts_us)
        found = self._catalogue.table(*table.split(".", 1))
        if found is None or _is_sequence(found) or (self._needs_key and not found.key):
            # a table that is left out for its missing key must not become known by this
            return None
        relation = self._make(found)
        return relation.encoder.header, relation.encoder.body("t", None, None, ts_us)

    def _make(self, found: TableMap) -> Relation:
        where = f"{found.namespace}.{found.table}"
        names = [column.name for column in found.columns]
        table, codes, shown = shape(found, self._source, self._decoders, self._wanted)
        table = self._encoders.versioned(table)
        self.seen[where] = table
        encoder = self._encoders.encoder(table)
        return Relation(
            table, encoder, codes, shown, names, lambda: self._catalogue.filled(found.namespace, found.table)
        )  # fmt: skip

    def _filled_in(self, found: TableMap) -> TableMap:
        """Add names, labels and key from the catalogue, for a log without them."""
        where = f"{found.namespace}.{found.table}"
        known = self._catalogue.table(found.namespace, found.table)
        hint = "SET GLOBAL binlog_row_metadata = FULL, so that the log contains it; reset this source's position"
        if known is None:
            raise LogUnknownError(
                f"{where} has changes in the log, but was dropped: the names of its columns are unknown",
                source=self._source, hint=hint,
            )  # fmt: skip
        if len(known.columns) != len(found.columns):
            raise LogUnknownError(
                f"{where} has {len(known.columns)} columns now, and {len(found.columns)} in the log at this position",
                source=self._source, hint=hint,
            )  # fmt: skip
        columns = []
        for in_log, now in zip(found.columns, known.columns, strict=True):
            filled = self._column_filled_in(in_log, now, where)
            columns.append(filled if found.has_signs else replace(filled, is_unsigned=now.is_unsigned))
        return replace(known, columns=tuple(columns))

    def _column_filled_in(self, in_log: WireColumn, now: WireColumn, where: str) -> WireColumn:
        kinds = _OLD.get(in_log.type, in_log.type), _OLD.get(now.type, now.type)
        digits = (in_log.size, in_log.scale), (now.size, now.scale)
        if kinds[0] != kinds[1] or (in_log.type == tm.NEWDECIMAL and digits[0] != digits[1]):
            raise LogUnknownError(
                f"{where}.{now.name} has another type now than in the log at this position", source=self._source,
                hint="SET GLOBAL binlog_row_metadata = FULL, so that the log contains it; reset the position",
            )  # fmt: skip
        collation = in_log.collation if in_log.collation and in_log.type not in (tm.ENUM, tm.SET) else now.collation
        return replace(in_log, name=now.name, labels=now.labels, collation=collation)


def _is_sequence(found: TableMap) -> bool:
    """Whether this is a MariaDB sequence, which is a table with one row in the log and is not captured."""
    return not found.key and tuple(column.name for column in found.columns) == _SEQUENCE


def shape(
    found: TableMap, source: str, decoders: Decoders, wanted: Wanted
) -> tuple[TableSchema, list[ColumnCode], list[int]]:
    """Return the table, the reader of each column, and the indexes of the published columns."""
    where = f"{found.namespace}.{found.table}"
    codes = [column_code(column, f"{where}.{column.name}", decoders, wanted) for column in found.columns]
    shown = [i for i, column in enumerate(found.columns) if not column.name.startswith(tm.HIDDEN)]
    columns = tuple(Column(found.columns[i].name, codes[i].type) for i in shown)
    key = tuple(found.columns[i].name for i in found.key)
    return TableSchema(source, found.namespace, found.table, 0, columns, key), codes, shown
