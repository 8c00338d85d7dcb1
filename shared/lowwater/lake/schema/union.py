"""The union of the columns of all versions of a table, which readers see. No I/O.

A column that a version does not have is null in its rows. A type that was widened is shown as the wider type. If two
types have no common type that represents every value, the newest column keeps the name, and the older one is
`<name>__v<version>`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lowwater.lake.schema.columns import BEFORE, CDC_FIELDS, TYPE_NOTE, LakeTable, lake_name

#: maximum number of digits of an integer type
_DIGITS = {pa.int32(): 10, pa.int64(): 19}
_DECIMAL128_MAX = 38
_DECIMAL256_MAX = 76


@dataclass(frozen=True, slots=True)
class UnionColumn:
    field: pa.Field
    #: by schema id: the column's name in that version
    names: Mapping[int, str]

    @property
    def name(self) -> str:
        return str(self.field.name)


@dataclass(frozen=True, slots=True)
class TableUnion:
    """The versions of one table, by schema id, and their common columns."""

    versions: Mapping[int, LakeTable]
    columns: tuple[UnionColumn, ...]

    @property
    def newest(self) -> LakeTable:
        return self.versions[max(self.versions, key=lambda id_: (self.versions[id_].version, id_))]

    @property
    def row_schema(self) -> pa.Schema:
        return pa.schema([column.field for column in self.columns])

    @property
    def stream_schema(self) -> pa.Schema:
        before = pa.field(BEFORE, pa.struct(list(self.row_schema)))
        return pa.schema([*CDC_FIELDS, before, *self.row_schema])

    def column(self, name: str) -> UnionColumn | None:
        return next((column for column in self.columns if column.name == name), None)

    def renamed(self, schema_id: int) -> dict[str, str]:
        """Columns of a version that have another name in the union: name in the version → name in the union."""
        found = {c.names[schema_id]: c.name for c in self.columns if schema_id in c.names}
        # older files have the source's names in `_unchanged`: `_gsn` for the column `_gsn_`
        older = {own[:-1]: seen for own, seen in found.items() if own.endswith("_") and lake_name(own[:-1]) == own}
        return {own: seen for own, seen in {**older, **found}.items() if own != seen}


def _decimal(whole: int, scale: int) -> pa.DataType | None:
    precision = whole + scale
    if precision > _DECIMAL256_MAX:
        return None
    return (pa.decimal128 if precision <= _DECIMAL128_MAX else pa.decimal256)(precision, scale)


def _whole_and_scale(type_: pa.DataType) -> tuple[int, int] | None:
    if type_ in _DIGITS:
        return _DIGITS[type_], 0
    return (type_.precision - type_.scale, type_.scale) if pa.types.is_decimal(type_) else None


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The narrowest type that represents every value of both; None if there is none."""
    if one == other:
        return one
    pair = {one, other}
    if pair == {pa.int32(), pa.int64()}:
        return pa.int64()
    if pair in ({pa.float32(), pa.float64()}, {pa.int32(), pa.float64()}):
        return pa.float64()
    left, right = _whole_and_scale(one), _whole_and_scale(other)
    if left and right:
        return _decimal(max(left[0], right[0]), max(left[1], right[1]))
    if pa.types.is_list(one) and pa.types.is_list(other):
        item = common_type(one.value_type, other.value_type)
        return None if item is None else pa.list_(pa.field("item", item))
    return None


@dataclass
class _Growing:
    """A column of the union while it is built, from the newest version to the oldest."""

    version: int
    type: pa.DataType
    notes: set[bytes]
    names: dict[int, str] = field(default_factory=dict)


def _note(column: pa.Field) -> bytes:
    return bytes((column.metadata or {}).get(TYPE_NOTE, b""))


def _join(found: list[_Growing], schema_id: int, version: int, column: pa.Field) -> None:
    for one in found:
        common = common_type(one.type, column.type)
        if common is not None:
            one.type = common
            break
    else:
        one = _Growing(version, column.type, set())
        found.append(one)
    one.notes.add(_note(column))
    one.names[schema_id] = column.name


def _in_order(newest_first: Iterable[LakeTable]) -> list[str]:
    """The columns of the newest version, then further columns of older versions."""
    seen: dict[str, None] = {}
    for table in newest_first:
        seen.update(dict.fromkeys(column.name for column in table.columns))
    return list(seen)


def union_of(versions: Mapping[int, LakeTable]) -> TableUnion:
    """The union of these versions, by schema id."""
    newest_first = sorted(versions.items(), key=lambda item: (-item[1].version, -item[0]))
    growing: dict[str, list[_Growing]] = {}
    for schema_id, table in newest_first:
        for column in table.columns:
            _join(growing.setdefault(column.name, []), schema_id, table.version, column.field)
    names = _in_order(table for _, table in newest_first)
    taken = set(names)
    columns: list[UnionColumn] = []
    for name in names:
        for one in growing[name]:
            seen = name
            if one is not growing[name][0]:
                seen = f"{name}__v{one.version}"
                while seen in taken:
                    seen += "_"
                taken.add(seen)
            note = next(iter(one.notes)) if len(one.notes) == 1 else b""
            metadata = {TYPE_NOTE: note} if note else None
            columns.append(UnionColumn(pa.field(seen, one.type, metadata=metadata), one.names))
    return TableUnion(dict(versions), tuple(columns))
