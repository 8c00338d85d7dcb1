"""Reads a chunk's rows as Arrow through ADBC, with values identical to those of the stream for the same rows.

The stream receives text, which `types.py` converts. Here the server sends most types in binary, which is many times
faster; differences between binary and text (infinite dates, oids above 2³¹) are corrected for whole columns at once.
Types without a supported binary form are selected as the text of the type's output function, by `format('%s', …)`:
a cast to text gives a different text for some types (inet, bpchar, bool).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import adbc_driver_manager
import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from psycopg import sql

from lowwater.codec.rules import ColumnRules, Mask, PublishedColumn
from lowwater.codec.table import Column, ColumnKind
from lowwater.errors import CodecError, LowwaterError, SnapshotGoneError, SourceError, SourceLostError
from lowwater_extractor.snapshot.copy_columns import changed_since, planned_columns
from lowwater_extractor.sources.postgres.snapshot import arrow_values as av
from lowwater_extractor.sources.postgres.snapshot.chunks import Bounds
from lowwater_extractor.sources.postgres.types import ColumnType, PgType
from lowwater_extractor.sources.postgres.wire.text_values import SESSION_SETTINGS

#: rows per returned batch
BATCH_ROWS = 1 << 16
_BATCH_BYTES = 16 << 20

#: binary and text values are equivalent
_DIRECT = {"bool", "int2", "int4", "int8", "float4", "float8", "bytea", "text", "varchar", "bpchar"}
#: a cast to text equals the type's output function
_CAST = {"uuid", "json", "jsonb"}

_NO_SNAPSHOT = ("22023", "42704", "55000")
#: the table, a column or a type does not exist any more
_NO_RELATION = ("42P01", "42703", "42704")
_LOST = ("08", "57P01", "57P02", "57P03", "53300")

#: catalogue tables are read as of the snapshot; functions such as pg_relation_filenode() return current values
_NAMES = sql.SQL(
    "SELECT attnum::int4, attname::text FROM pg_catalog.pg_attribute"
    " WHERE attrelid = {relation}::regclass AND attnum > 0 AND NOT attisdropped"
)
_FILES = sql.SQL(
    "SELECT oid::int8, relfilenode::int8, pg_catalog.pg_relation_filenode(oid)::int8 FROM pg_catalog.pg_class"
    " WHERE oid = {relation}::regclass"
)

#: converts a column as read to a column of the lake
Build = Callable[[pa.Array, pa.DataType], pa.Array]


@dataclass(frozen=True, slots=True)
class CopyColumn:
    """A column of the table's current definition."""

    name: str
    column_type: ColumnType
    pg: PgType
    #: stable when the column is renamed; 0: unknown
    attnum: int = 0
    #: its name as of the snapshot, which the plan uses
    planned: str = ""

    @property
    def known_as(self) -> str:
        return self.planned or self.name


@dataclass(frozen=True, slots=True)
class _Read:
    """How a column of the lake is read; without an expression it is NULL."""

    field: pa.Field
    expression: sql.Composable | None = None
    build: Build = av.as_it_is


def read_chunk(
    conninfo: str,
    columns: Sequence[CopyColumn],
    bounds: Bounds,
    avro: str,
    rules: ColumnRules | None = None,
    *,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """Batches of `lake_table(avro).copy_schema`, with the rules applied.

    `avro` is the table version that the chunk was planned with, `columns` are the table's current ones, in any order.
    Raises SnapshotGoneError if this chunk can no longer be read; a new plan will replace it.
    """
    with _session(conninfo, bounds) as cursor:
        reads = plan_reads(_as_planned(cursor, columns, bounds), avro, rules or ColumnRules())
        schema = pa.schema([read.field for read in reads])
        query = _query(bounds, reads)
        with _named(bounds, "read"):
            cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": str(_BATCH_BYTES)})
            cursor.execute(query)
            batches = iter(cursor.fetch_record_batch())
        while True:
            with _named(bounds, "read"):
                found = next(batches, None)
            if found is None:
                _check_not_rewritten(cursor, bounds)
                return
            batch = _built(found, reads, schema, bounds)
            for start in range(0, batch.num_rows, batch_rows):
                yield batch.slice(start, batch_rows)


# -- the query ------------------------------------------------------------------------------------------------


def plan_reads(columns: Sequence[CopyColumn], avro: str, rules: ColumnRules) -> list[_Read]:
    """Return how to read each column of the lake."""
    made = [Column(column.known_as, column.column_type.type) for column in columns]
    return [
        # a column dropped since planning is read as NULL: it alone does not require a new copy
        _Read(found.field)
        if found.shown is None
        else _read(found.field, columns[found.shown.place], found.shown, found.mask)
        for found in planned_columns(made, avro, rules)
    ]


def _read(field: pa.Field, column: CopyColumn, shown: PublishedColumn, mask: Mask | None) -> _Read:
    name = sql.Identifier(column.name)
    convert = column.column_type.convert
    if mask is Mask.NULL:
        return _Read(field)
    if mask is Mask.REDACT:
        text = sql.SQL("CASE WHEN {} IS DISTINCT FROM NULL THEN '***'::pg_catalog.text END").format(name)
        return _Read(field, text)
    if shown.change is not None:
        change = shown.change
        return _Read(field, _text(name), partial(av.by_value, convert=lambda value: change(convert(value))))
    kind, pg = column.column_type.type.kind, column.pg.name
    if kind is ColumnKind.ARRAY:
        return _Read(field, _text(name), partial(av.by_value, convert=convert))
    if column.column_type.is_text or kind in (ColumnKind.STRING, ColumnKind.UUID):
        if pg in _DIRECT and kind is ColumnKind.STRING and pg in ("text", "varchar", "bpchar"):
            return _Read(field, name)
        cast = sql.SQL("{}::pg_catalog.text").format(name)
        return _Read(field, cast if pg in _CAST else _text(name))
    if pg in _DIRECT:
        return _Read(field, name)
    return _Read(field, *_SPECIAL[pg](name))


def _text(name: sql.Identifier) -> sql.Composable:
    """The text of the type's output function. Not `IS NULL`, which is true for a composite value of all nulls."""
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.format('%s', {0}) END").format(name)


def _hex(name: sql.Identifier) -> sql.Composable:
    return sql.SQL("pg_catalog.decode({}, 'hex')").format(_text(name))


def _cast(type_: str, name: sql.Identifier) -> sql.Composable:
    return sql.SQL("{}::{}").format(name, sql.Identifier("pg_catalog", type_))


_SPECIAL: dict[str, Callable[[sql.Identifier], tuple[sql.Composable, Build]]] = {
    # the driver reads oid as a signed 32-bit integer
    "oid": lambda name: (_cast("int8", name), av.as_it_is),
    "numeric": lambda name: (name, av.decimals),
    "money": lambda name: (_cast("numeric", name), av.decimals),
    "date": lambda name: (name, av.dates),
    "time": lambda name: (name, av.times),
    "timestamp": lambda name: (name, av.instants),
    "timestamptz": lambda name: (name, av.instants),
    "geometry": lambda name: (_hex(name), av.as_it_is),
    "geography": lambda name: (_hex(name), av.as_it_is),
}


def _query(bounds: Bounds, reads: Sequence[_Read]) -> str:
    wanted = [read.expression for read in reads if read.expression is not None]
    # without any column the rows are still counted
    items = sql.SQL(", ").join(wanted or [sql.SQL("true")])
    asked = sql.SQL("SELECT {} FROM {} WHERE {}").format(items, bounds.relation, bounds.where)
    return asked.as_string(None)


def _built(found: pa.RecordBatch, reads: Sequence[_Read], schema: pa.Schema, bounds: Bounds) -> pa.RecordBatch:
    columns = iter(found.columns)
    arrays = []
    for read in reads:
        if read.expression is None:
            arrays.append(pa.nulls(found.num_rows, read.field.type))
            continue
        try:
            arrays.append(read.build(next(columns), read.field.type))
        except (CodecError, pa.ArrowException, ValueError, ArithmeticError, IndexError) as error:
            # the message does not contain the value
            what = error.what if isinstance(error, LowwaterError) else "a value that does not fit its type"
            hint = error.hint if isinstance(error, LowwaterError) else None
            raise CodecError(
                f"{bounds.schema}.{bounds.table}.{read.field.name} ({read.field.type}): {what}",
                hint=hint or "capture the column `as_text`",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


# -- the session ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _session(conninfo: str, bounds: Bounds) -> Iterator[adbc.Cursor]:
    with _named(bounds, "connect"):
        connection = adbc.connect(conninfo, autocommit=True)
    with connection, connection.cursor() as cursor:
        with _named(bounds, "begin"):
            cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        if bounds.snapshot:
            with _named(bounds, "take the snapshot", _NO_SNAPSHOT):
                # must precede any statement that takes a snapshot
                cursor.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(bounds.snapshot).as_string(None))
        with _named(bounds, "begin"):
            for name, value in SESSION_SETTINGS.items():
                cursor.execute(sql.SQL("SET LOCAL {} = {}").format(sql.Identifier(name), value).as_string(None))
        yield cursor


def _as_planned(cursor: adbc.Cursor, columns: Sequence[CopyColumn], bounds: Bounds) -> list[CopyColumn]:
    """Set `planned` to the names as of the snapshot: columns may have been renamed since."""
    with _named(bounds, "read the columns"):
        cursor.execute(_NAMES.format(relation=sql.Literal(bounds.qualified)).as_string(None))
        names: dict[int, str] = dict(cursor.fetchall())
    return [replace(column, planned=names.get(column.attnum, "")) for column in columns]


def _check_not_rewritten(cursor: adbc.Cursor, bounds: Bounds) -> None:
    """Raise if the table was rewritten or replaced since the snapshot: rows may have moved or be invisible to it.

    Called after all rows were read, while the table is still locked.
    """
    with _named(bounds, "check the table"):
        cursor.execute(_FILES.format(relation=sql.Literal(bounds.qualified)).as_string(None))
        found = cursor.fetchall()
    # a table created after the snapshot appears empty in it
    oid, then, now = found[0] if found else (0, None, None)
    if not found or (bounds.oid and oid != bounds.oid):
        raise changed_since(f"{bounds.schema}.{bounds.table} is another table now")
    if now is not None and then != now:
        raise changed_since(f"{bounds.schema}.{bounds.table} was rewritten")


@contextlib.contextmanager
def _named(bounds: Bounds, doing: str, gone: tuple[str, ...] = _NO_RELATION) -> Iterator[None]:
    """Convert driver errors to SnapshotGoneError, SourceLostError or SourceError."""
    try:
        yield
    except adbc_driver_manager.Error as error:
        state = error.sqlstate or ""
        # the driver's text contains the whole statement, then the server's message
        text = str(error).rpartition("ERROR:")[2].partition(". SQLSTATE")[0].strip()
        what = f"{bounds.schema}.{bounds.table}: {doing}: {text}"
        if state in gone:
            raise SnapshotGoneError(what, hint="the copy of this table is planned again") from error
        if not state or state.startswith(_LOST):
            raise SourceLostError(what, hint="it is tried again; is the server up?") from error
        raise SourceError(f"{what} ({state})", hint="the copy is tried again; see the server's log") from error
