"""Converts batches of one table version to the columns and types of the union of all versions. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.schema.columns import BEFORE, CDC_FIELDS
from lowwater.lake.schema.union import TableUnion, UnionColumn

CDC_TYPES = {field.name: field.type for field in CDC_FIELDS}
UNCHANGED = "_unchanged"
#: maximum precision of a decimal in DuckDB and Spark
DECIMAL_DIGITS_MAX = 38


def transport(type_: pa.DataType) -> pa.DataType:
    """The type in which DuckDB and Spark get a column: decimals that are too wide for them become text."""
    if pa.types.is_decimal(type_) and type_.precision > DECIMAL_DIGITS_MAX:
        return pa.string()
    if pa.types.is_list(type_):
        return pa.list_(pa.field("item", transport(type_.value_type)))
    return type_


def file_columns(union: TableUnion, schema_id: int, wanted: Sequence[str]) -> list[str]:
    """The columns to read from a file of this version for the wanted columns of the union."""
    found: list[str] = []
    for name in wanted:
        if name in CDC_TYPES or name == BEFORE:
            found.append(name)
        else:
            column = union.column(name)
            if column is not None and schema_id in column.names:
                found.append(column.names[schema_id])
    return list(dict.fromkeys(found))


def _row_column(
    column: UnionColumn, schema_id: int, rows: int, get: Callable[[str], pa.Array], type_: pa.DataType
) -> pa.Array:
    name = column.names.get(schema_id)
    if name is None:
        return pa.nulls(rows, type_)
    # first to the type of the union, which can represent every value
    return convert(convert(get(name), column.field.type), type_)


def convert(array: pa.Array, type_: pa.DataType) -> pa.Array:
    return array if array.type == type_ else array.cast(type_)


def _unchanged(array: pa.Array, renamed: dict[str, str]) -> pa.Array:
    """Replaces column names of this version by those of the union."""
    if not renamed:
        return array
    names = [None if one is None else [renamed.get(name, name) for name in one] for one in array.to_pylist()]
    return pa.array(names, array.type)


def _before(union: TableUnion, schema_id: int, array: pa.Array, type_: pa.DataType) -> pa.Array:
    if array.type == type_:
        return array
    children = [
        _row_column(column, schema_id, len(array), lambda name: pc.struct_field(array, [name]), column.field.type)
        for column in union.columns
    ]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())


def adapt(batch: pa.RecordBatch, union: TableUnion, schema_id: int, schema: pa.Schema) -> pa.RecordBatch:
    """Converts a batch of a version to `schema`, which has some columns of the union's stream schema."""
    arrays = []
    for field in schema:
        if field.name == UNCHANGED:
            arrays.append(_unchanged(batch.column(UNCHANGED), union.renamed(schema_id)))
        elif field.name in CDC_TYPES:
            arrays.append(batch.column(field.name))
        elif field.name == BEFORE:
            arrays.append(_before(union, schema_id, batch.column(BEFORE), field.type))
        else:
            column = union.column(field.name)
            assert column is not None
            arrays.append(_row_column(column, schema_id, batch.num_rows, batch.column, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def alias(number: int) -> str:
    """The name of a row's column in queries: real names may differ only in case, or equal those of CDC columns."""
    return f"c{number}"


def before_alias(number: int) -> str:
    return f"b{number}"


def aliased_schema(
    union: TableUnion,
    cdc: Sequence[str],
    columns: Sequence[int],
    before: Sequence[int],
    transport: Callable[[pa.DataType], pa.DataType],
) -> pa.Schema:
    fields = [pa.field(name, transport(CDC_TYPES[name])) for name in cdc]
    fields += [pa.field(alias(n), transport(union.columns[n].field.type)) for n in columns]
    fields += [pa.field(before_alias(n), transport(union.columns[n].field.type)) for n in before]
    return pa.schema(fields)


def adapt_aliased(
    batch: pa.RecordBatch, union: TableUnion, schema_id: int, schema: pa.Schema, has_cdc: bool = True
) -> pa.RecordBatch:
    """As `adapt`, for an aliased schema; rows without CDC columns get nulls for them."""
    arrays = []
    for field in schema:
        if field.name in CDC_TYPES:
            if not has_cdc:
                arrays.append(pa.nulls(batch.num_rows, field.type))
                continue
            array = batch.column(field.name)
            if field.name == UNCHANGED:
                array = _unchanged(array, union.renamed(schema_id))
            arrays.append(convert_deep(array, field.type))
            continue
        column = union.columns[int(field.name[1:])]
        if field.name[0] == "c":
            get = batch.column
        else:
            get = lambda name: pc.struct_field(batch.column(BEFORE), [name])  # noqa: E731
        arrays.append(_row_column(column, schema_id, batch.num_rows, get, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def convert_deep(array: pa.Array, type_: pa.DataType) -> pa.Array:
    """As `convert`, also for structs: Arrow casts their fields only if all names are equal."""
    if array.type == type_ or not pa.types.is_struct(type_):
        return convert(array, type_)
    children = [convert(pc.struct_field(array, [f.name]), f.type) for f in type_]
    return pa.StructArray.from_arrays(children, fields=list(type_), mask=array.is_null())
