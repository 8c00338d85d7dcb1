"""One version of a captured table: converts log rows to frames, according to the writers' capture mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import LogUnknownError
from lowwater_extractor.api import Encoders, Frame
from lowwater_extractor.row_program import NEVER_NULL, ROWID, Program, What, column, program
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.schema.definitions import CellType, Definition
from lowwater_extractor.sources.turso.wire.rows import ReadRow, compile_reader

INSERT, UPDATE, DELETE, COMMIT = 1, 0, -1, 2
#: minor number of the order of commits; lower ones are for copies, of which many may become readable between commits
COMMIT_MINOR = 1 << 32

#: (rowid, before, after, updates, time) → body after `seq`
MakeBody = Callable[[int, bytes | None, bytes | None, bytes | None, int], bytes]


def problem(definition: Definition, config: TursoConfig) -> tuple[str, str] | None:
    """Return why a table cannot be captured, and the fix; None if it can."""
    name = definition.full_name
    if not definition.has_rowid:
        return f"{name} is WITHOUT ROWID: Turso does not capture such tables", "remove it from `tables`"
    if not definition.key and config.without_key == "refuse":
        fix = "add a primary key; or set without_key: rowid, if VACUUM is never run"
        return f"{name} has no primary key: its rows cannot be identified", fix
    if config.has_log and config.capture != "full" and definition.key and not definition.alias:
        fix = "let the writers capture `full`, and set capture: full; or give the table an INTEGER PRIMARY KEY"
        return f"{name}: capture mode `{config.capture}` does not contain the key of a deleted row", fix
    return None


@dataclass(frozen=True, slots=True)
class Captured:
    definition: Definition
    table: TableSchema
    header: bytes
    insert: MakeBody
    update: MakeBody
    delete: MakeBody
    truncate: Callable[[int], Frame]
    #: the fast path, which nearly all changes take; the functions above encode the others
    quick: Program | None


class CapturedMaker:
    def __init__(self, config: TursoConfig, source: str, encoders: Encoders) -> None:
        self._config = config
        self._source = source
        self._encoders = encoders

    def make(self, definition: Definition) -> Captured:
        keys_only = self._config.keys_only
        table = self._encoders.versioned(definition.schema(self._source, keys_only=keys_only))
        encoder = self._encoders.encoder(table)
        read = compile_reader(definition, self._source)
        lacking = self._lacking(definition.full_name)
        if keys_only:
            bodies = _keys(encoder)
        elif self._config.capture == "after":
            bodies = _after(encoder, read, definition, lacking)
        else:
            is_sure = definition.alias or not definition.key or self._config.upserts == "keep_key"
            bodies = _full(encoder, read, lacking, None if is_sure else self._upsert(definition.full_name))

        def truncate(ts_us: int) -> Frame:
            return encoder.header, encoder.body("t", None, None, ts_us)

        quick = _program(definition, encoder) if self._config.capture == "full" and not keys_only else None
        return Captured(definition, table, encoder.header, *bodies, truncate, quick)

    def _lacking(self, where: str) -> Callable[[str], LogUnknownError]:
        def error(what: str) -> LogUnknownError:
            return LogUnknownError(
                f"{where}: {what} is not in the log: a writer does not capture in mode `{self._config.capture}`",
                source=self._source,
                thread=1,
                hint="call lowwater.turso.capture(connection) in every writer; then reset the source",
            )

        return error

    def _upsert(self, where: str) -> Callable[[], LogUnknownError]:
        def error() -> LogUnknownError:
            return LogUnknownError(
                f"{where}: an upsert has changed a row, and the log does not contain the key that it had before",
                source=self._source,
                thread=1,
                hint="set upserts: keep_key if no upsert changes the key of its row; otherwise use UPDATE instead",
            )

        return error


_WHATS = {
    CellType.INTEGER: column(What.INTEGER),
    CellType.REAL: column(What.REAL),
    CellType.TEXT: column(What.TEXT),
    CellType.BLOB: column(What.BLOB),
    CellType.ANY: b"",
}


def _program(definition: Definition, encoder: TableEncoder) -> Program | None:
    """Return the program of the fast path. A table without a key is published with the rowid before its columns."""

    def flags(number: int) -> int:
        name = definition.cells[number].name
        return ROWID if name == definition.alias else NEVER_NULL if name in definition.key else 0

    first = 0 if definition.key else 1
    if first and encoder.columns[0].change is not None:
        # the rowid, which is not a column of the record, is masked
        return None
    if any(cell.name == definition.alias and cell.type is not CellType.INTEGER for cell in definition.cells):
        # the config publishes the rowid's column as another type
        return None
    columns = [_WHATS[cell.type] for cell in definition.cells]
    return program(encoder, columns, range(first, first + len(columns)), flags)


Bodies = tuple[MakeBody, MakeBody, MakeBody]
_Lacking = Callable[[str], LogUnknownError]
_Unsure = Callable[[], LogUnknownError]


def _full(encoder: TableEncoder, read: ReadRow, lacking: _Lacking, unsure: _Unsure | None) -> Bodies:
    def insert(rowid: int, before: bytes | None, after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        # if an update moves a row to another rowid, Turso writes the new row as `before`
        record = before if after is None else after
        if record is None:
            raise lacking("an inserted row")
        return encoder.insert(read(record, rowid), ts_us)

    def update(rowid: int, before: bytes | None, after: bytes | None, updates: bytes | None, ts_us: int) -> bytes:
        if before is None or after is None:
            raise lacking("an updated row")
        if updates is not None:
            return encoder.update(read(before, rowid) + read(after, rowid), ts_us)
        # an upsert: `before` is the row as it is now, not as it was
        if unsure is not None:
            raise unsure()
        return encoder.body("u", None, read(after, rowid), ts_us)

    def delete(rowid: int, before: bytes | None, _after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        if before is None:
            raise lacking("a deleted row")
        return encoder.delete(read(before, rowid), ts_us)

    return insert, update, delete


def _after(encoder: TableEncoder, read: ReadRow, definition: Definition, lacking: _Lacking) -> Bodies:
    key = next((place for place, cell in enumerate(definition.cells) if cell.name == definition.alias), 0)
    width = len(definition.cells) + (not definition.key)

    def whole(rowid: int, record: bytes | None) -> list[Any]:
        if record is None:
            raise lacking("a row")
        row = read(record, rowid)
        if row[key] != rowid:
            raise lacking(f"the key {definition.alias}, which is not the rowid,")
        return row

    def insert(rowid: int, before: bytes | None, after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        return encoder.insert(whole(rowid, before if after is None else after), ts_us)

    def update(rowid: int, _before: bytes | None, after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        return encoder.body("u", None, whole(rowid, after), ts_us)

    def delete(rowid: int, _before: bytes | None, _after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        row: list[Any] = [None] * width
        row[key] = rowid
        return encoder.body("d", row, None, ts_us)

    return insert, update, delete


def _keys(encoder: TableEncoder) -> Bodies:
    def insert(rowid: int, _before: bytes | None, _after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        return encoder.insert([rowid], ts_us)

    def update(rowid: int, _before: bytes | None, _after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        return encoder.body("u", None, [rowid], ts_us)

    def delete(rowid: int, _before: bytes | None, _after: bytes | None, _updates: bytes | None, ts_us: int) -> bytes:
        return encoder.delete([rowid], ts_us)

    return insert, update, delete
