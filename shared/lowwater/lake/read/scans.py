"""DuckDB SQL over a lake's files: one SELECT over all versions of a table, each column with its alias."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pyarrow as pa

from lowwater.errors import LakeDamagedError, LakeError
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.schema.adapt import (
    CDC_TYPES,
    DECIMAL_DIGITS_MAX,
    UNCHANGED,
    adapt_aliased,
    alias,
    aliased_schema,
    before_alias,
    file_columns,
    transport,
)
from lowwater.lake.schema.columns import BEFORE
from lowwater.lake.schema.union import TableUnion
from lowwater.lake.store.base import Store
from lowwater.lake.store.parquet_files import StoredFiles, change_batches, row_batches

_ALL = (1 << 63) - 1
_MEMORY_SHARE = 0.5
_TYPES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.time64("us"): "TIME",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", tz="UTC"): "TIMESTAMPTZ",
    pa.uint64(): "UBIGINT",
}


def connect(memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """A new connection with a memory limit, spilling to disk, and with TimeZone UTC."""
    con = duckdb.connect()
    if memory is None:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = f"{int(total * _MEMORY_SHARE) >> 20}MiB"
    con.execute("SET memory_limit = ?", [memory])
    con.execute("SET temp_directory = ?", [os.path.join(tempfile.gettempdir(), f"lowwater-duckdb-{os.getpid()}")])
    con.execute("SET TimeZone = 'UTC'")
    # the order of a state's rows has no meaning, and preserving it costs memory
    con.execute("SET preserve_insertion_order = false")
    return con


@contextmanager
def asking(store: Store) -> Iterator[None]:
    """Converts errors of DuckDB: LakeDamagedError for a file that cannot be read, LakeError for lack of memory."""
    try:
        yield
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise LakeDamagedError(
            f"a file of {store.uri} cannot be read: {error}",
            hint="a view older than `grace_hours` of the lake needs `refresh`; else see `lowwater lake verify`",
        ) from error
    except duckdb.OutOfMemoryException as error:
        raise LakeError(
            f"the query needs more memory than allowed: {error}", hint="give more memory, or ask for fewer columns"
        ) from error


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def sql_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})" if type_.precision <= DECIMAL_DIGITS_MAX else "VARCHAR"
    if pa.types.is_list(type_):
        return f"{sql_type(type_.value_type)}[]"
    if pa.types.is_struct(type_):
        return f"STRUCT({', '.join(f'{quoted(f.name)} {sql_type(f.type)}' for f in type_)})"
    return _TYPES[type_]


def _is_plain(union: TableUnion, schema_id: int) -> bool:
    """Whether DuckDB can read files of this version directly: no decimals that are too wide, no names that differ only
    in case."""
    table = union.versions[schema_id]
    names = [column.name.lower() for column in table.columns] + [*CDC_TYPES, BEFORE]
    types = [column.field.type for column in union.columns if schema_id in column.names]
    return len(set(names)) == len(names) and all(transport(type_) == type_ for type_ in types)


class Scans:
    """FROM clauses over one table's files, on one connection."""

    def __init__(self, con: duckdb.DuckDBPyConnection, store: Store, union: TableUnion) -> None:
        self.con = con
        self.store = store
        self.union = union
        self._made: dict[tuple[object, ...], str] = {}

    def select(
        self,
        files: Iterable[File],
        cdc: Sequence[str],
        columns: Sequence[int],
        before: Sequence[int] = (),
        where: str = "true",
    ) -> str:
        """A SELECT of CDC columns by their names, the row's by `c<number>`, those of `_before` by `b<number>`.

        Rows of `copy` files have nulls in their CDC columns.
        """
        parts: dict[tuple[int, bool], list[File]] = {}
        for file in files:
            parts.setdefault((file.schema_id, file.layer is Layer.COPY), []).append(file)
        selects = [
            self._one(schema_id, is_copy, found, cdc, columns, before, where)
            for (schema_id, is_copy), found in sorted(parts.items())
        ]
        if not selects:
            schema = aliased_schema(self.union, cdc, columns, before, transport)
            nulls = ", ".join(f"CAST(NULL AS {sql_type(f.type)}) AS {f.name}" for f in schema)
            return f"SELECT {nulls} WHERE false"
        return " UNION ALL ".join(f"({one})" for one in selects)

    def _one(
        self,
        schema_id: int,
        is_copy: bool,
        files: list[File],
        cdc: Sequence[str],
        columns: Sequence[int],
        before: Sequence[int],
        where: str,
    ) -> str:
        paths = [self.store.local_path(file.path) for file in files]
        # DuckDB would treat these characters as patterns
        is_local = all(path is not None and not set(path) & set("*?[") for path in paths)
        plain = _is_plain(self.union, schema_id)
        condition = "true" if is_copy else where
        if not plain or (before and not is_local):
            name = self._gathered(schema_id, is_copy, files, cdc, columns, before)
            return f"SELECT * FROM {name} WHERE {condition}"
        if is_local:
            listed = ", ".join(text(path) for path in paths if path is not None)
            source = f"read_parquet([{listed}], hive_partitioning = false)"
        else:
            source = self._stored(schema_id, is_copy, files, self._needed(schema_id, cdc, columns, before, condition))
        items = [self._cdc_item(name, schema_id, is_copy) for name in cdc]
        items += [f"{self._row_item(n, schema_id, '')} AS {alias(n)}" for n in columns]
        items += [f"{self._row_item(n, schema_id, f'{BEFORE}.')} AS {before_alias(n)}" for n in before]
        return f"SELECT {', '.join(items) or '1 AS one'} FROM {source} WHERE {condition}"

    def _cdc_item(self, name: str, schema_id: int, is_copy: bool) -> str:
        if is_copy:
            return f"CAST(NULL AS {sql_type(CDC_TYPES[name])}) AS {name}"
        renamed = self.union.renamed(schema_id)
        if name != UNCHANGED or not renamed:
            return name
        cases = " ".join(f"WHEN {text(own)} THEN {text(seen)}" for own, seen in renamed.items())
        return f"list_transform({UNCHANGED}, lambda n: CASE n {cases} ELSE n END) AS {UNCHANGED}"

    def _row_item(self, number: int, schema_id: int, prefix: str) -> str:
        column = self.union.columns[number]
        wanted = sql_type(column.field.type)
        name = column.names.get(schema_id)
        if name is None:
            return f"CAST(NULL AS {wanted})"
        own = next(c.field.type for c in self.union.versions[schema_id].columns if c.name == name)
        if own == column.field.type:
            return f"{prefix}{quoted(name)}"
        return f"CAST({prefix}{quoted(name)} AS {wanted})"

    def _needed(
        self, schema_id: int, cdc: Sequence[str], columns: Sequence[int], before: Sequence[int], condition: str
    ) -> list[str]:
        """The columns of the files that the query uses."""
        own = {self.union.columns[n].names.get(schema_id) for n in columns}
        told = {name for name in CDC_TYPES if name in condition}
        return sorted({*cdc, *told, *(name for name in own if name is not None), *([BEFORE] if before else [])})

    def _stored(self, schema_id: int, is_copy: bool, files: list[File], needed: Sequence[str]) -> str:
        made = (schema_id, is_copy, *(file.path for file in files), tuple(needed))
        if made in self._made:
            return self._made[made]
        table = self.union.versions[schema_id]
        schema = table.copy_schema if is_copy else table.stream_schema
        # at least one column is needed to count rows
        fields = [field for field in schema if field.name in needed] or [schema.field(0)]
        name = _new_name()
        self.con.register(name, StoredFiles(self.store, files, pa.schema(fields)))
        self._made[made] = name
        return name

    def _gathered(
        self,
        schema_id: int,
        is_copy: bool,
        files: list[File],
        cdc: Sequence[str],
        columns: Sequence[int],
        before: Sequence[int],
    ) -> str:
        """The name of a temporary table with the rows, read by Arrow."""
        made = (schema_id, is_copy, *(file.path for file in files), tuple(cdc), tuple(columns), tuple(before))
        if made in self._made:
            return self._made[made]
        schema = aliased_schema(self.union, cdc, columns, before, transport)
        wanted = [*cdc, *(self.union.columns[n].name for n in columns)] + ([BEFORE] if before else [])

        def batches() -> Iterator[pa.RecordBatch]:
            for file in files:
                if is_copy:
                    own = file_columns(self.union, schema_id, [name for name in wanted if name not in CDC_TYPES])
                    found = row_batches(self.store, file, own)
                else:
                    own = file_columns(self.union, schema_id, ["_gsn", *wanted])
                    found = change_batches(self.store, file, own, -1, _ALL)
                for batch in found:
                    yield adapt_aliased(batch, self.union, schema_id, schema, has_cdc=not is_copy)

        name, reader = _new_name(), _new_name()
        self.con.register(reader, pa.RecordBatchReader.from_batches(schema, batches()))
        self.con.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM {reader}")
        self.con.unregister(reader)
        self._made[made] = name
        return name


def _new_name() -> str:
    return f"lowwater_{uuid.uuid4().hex}"
