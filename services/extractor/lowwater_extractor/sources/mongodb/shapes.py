"""A collection's columns, grown from the documents that were seen, and the documents as rows of them.

Every table has `_id`, which is its key, a column for each field, and `_rest`: extended JSON of whatever of a document
is in no column. A field that is null is there, and one that is missing is nowhere: so are the two told apart.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring as quoted
from typing import Any

from lowwater.codec import table as t
from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import REST, Column, TableSchema
from lowwater.errors import CodecError
from lowwater_extractor.sources.mongodb.types import (
    COLUMN_TYPES,
    CONVERTS,
    ID_CONVERTS,
    Convert,
    FieldType,
    Misfit,
    id_type_of,
    type_of,
    widened,
)
from lowwater_extractor.sources.mongodb.wire import extended_json as extended
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb
from lowwater_extractor.sources.mongodb.wire.raw_bson import Value

ID = "_id"
_ID = ID.encode()
#: no column has a longer name: the field is in `_rest`
NAME_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of a collection's documents. `fields` is in the order in which they were first seen."""

    namespace: str
    collection: str
    #: None: no document was seen
    id_type: FieldType | None = None
    fields: dict[str, FieldType] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.collection}"

    def grown(self, data: bytes, at: int, columns_max: int) -> Shape:
        """With what a document has beyond it."""
        fields, id_type = dict(self.fields), self.id_type
        for raw, value in rb.elements(data, at):
            if raw == _ID:
                id_type = id_type or id_type_of(data, value)
            elif value.type != rb.NULL:
                self._grow(fields, raw, type_of(data, value), columns_max)
        return replace(self, id_type=id_type, fields=fields)

    def _grow(self, fields: dict[str, FieldType], raw: bytes, type_: FieldType, columns_max: int) -> None:
        if not is_nameable(raw):
            return
        name = extended.name_text(raw)
        if name in fields:
            fields[name] = widened(fields[name], type_)
        elif len(fields) < columns_max:
            fields[name] = type_

    def with_id_as_json(self) -> Shape:
        return replace(self, id_type=FieldType.JSON)

    def table(self, source: str, masked: frozenset[str] = frozenset()) -> TableSchema:
        """`masked`: fields whose values are hidden whatever their type is."""
        columns = [Column(ID, COLUMN_TYPES[self.id_type or FieldType.OBJECT_ID], nullable=False)]
        columns += [Column(n, t.STRING if n in masked else COLUMN_TYPES[type_]) for n, type_ in self.fields.items()]
        columns.append(Column(REST, t.JSON))
        return TableSchema(source, self.namespace, self.collection, 0, tuple(columns), (ID,))

    def pack(self) -> bytes:
        """Small: it is remembered with the position, and goes with every chunk."""
        return json.dumps({"id": self.id_type, "fields": self.fields}, ensure_ascii=False).encode()

    @classmethod
    def unpack(cls, namespace: str, collection: str, data: bytes) -> Shape:
        try:
            found: dict[str, Any] = json.loads(data)
            fields = {name: FieldType(type_) for name, type_ in found["fields"].items()}
            return cls(namespace, collection, FieldType(found["id"]) if found["id"] else None, fields)
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                f"the columns of {namespace}.{collection} that were remembered cannot be read: {error}",
                hint="were they written by a newer lowwater? upgrade this one",
            ) from error


def id_type_in(data: bytes) -> FieldType | None:
    """Of the column `_id` for this document alone; None: it has none."""
    return next((id_type_of(data, value) for raw, value in rb.elements(data, 0) if raw == _ID), None)


def is_nameable(raw: bytes) -> bool:
    """Whether a field can have a column of its own."""
    return 0 < len(raw) <= NAME_BYTES_MAX and raw != REST.encode()


class OtherIdError(CodecError):
    """An `_id` that its column does not hold; one of JSON holds all."""


class Grows(Exception):
    """A document has something that its collection's shape has no column for, and may have one."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Fields that nobody may see, in no column and not in `_rest`."""

    dropped: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rules: ColumnRules, table: str) -> Hidden:
        def names(rules: Iterable[str]) -> frozenset[str]:
            found = frozenset(name.removeprefix(f"{table}.") for name in rules if name.startswith(f"{table}."))
            # `_rest` and `_id` are ours: what hides them is done to the column
            return found - {REST, ID}

        return cls(names(rules.drop), names(rules.mask or {}))


class RowReader:
    """Documents as rows of one shape; the values as the encoder takes them."""

    def __init__(self, shape: Shape, hidden: Hidden, columns_max: int, *, is_growing: bool = True) -> None:
        self.shape = shape
        self._is_growing = is_growing
        self._room = columns_max
        self._dropped = {name.encode() for name in hidden.dropped}
        self._masked = {name.encode(): 1 + n for n, name in enumerate(shape.fields) if name in hidden.masked}
        self._hidden_ahead = {name.encode() for name in hidden.masked}
        self._types = {name.encode(): type_ for name, type_ in shape.fields.items()}
        self._blank: list[Any] = [None] * (len(shape.fields) + 2)
        #: by type and name of an element: place in the row, size of the value, how it is read
        self._plain: dict[bytes, tuple[int, int, Convert]] = {}
        id_type = shape.id_type or FieldType.OBJECT_ID
        for (column, type_), convert in ID_CONVERTS.items():
            if column is id_type:
                self._plain[bytes((type_,)) + _ID] = (0, rb.SIZES[type_], convert)
        for place, (name, field_type) in enumerate(shape.fields.items(), 1):
            if name not in hidden.masked and name not in hidden.dropped:
                for (column, type_), convert in CONVERTS.items():
                    if column is field_type and type_ != rb.NULL:
                        self._plain[bytes((type_,)) + name.encode()] = (place, rb.SIZES[type_], convert)

    def read(self, data: bytes, at: int = 0) -> list[Any]:
        """The document that begins at `at`. Grows: it has more than the shape. OtherIdError: its `_id` does not fit."""
        row = self._blank[:]
        rest: list[str] = []
        get, length = self._plain.get, rb.length
        last = at + length(data, at)[0] - 1
        at += 4
        while at < last:
            name_end = data.index(0, at + 1)
            known = get(data[at:name_end])
            begin, at = at, name_end + 1
            if known is None:
                at = self._other(data, begin, name_end, row, rest)
                continue
            place, size, convert = known
            if size >= 0:
                end = at + size
            elif size == -1:
                end = at + 4 + length(data, at)[0]
            else:
                end = rb.end_of(data, data[begin], at)
            try:
                if row[place] is not None:
                    raise Misfit  # a name that comes twice
                row[place] = convert(data, at, end)
            except Misfit:
                self._keep(data, data[begin + 1 : name_end], Value(data[begin], at, end), rest)
            at = end
        if at != last or last >= len(data) or data[last]:
            raise self._wrong("a BSON document that does not end where it says", "restart the source; report it")
        if row[0] is None:
            raise self._wrong("a document without an `_id`", "report it")
        if rest:
            row[-1] = "{" + ",".join(rest) + "}"
        return row

    def _other(self, data: bytes, begin: int, name_end: int, row: list[Any], rest: list[str]) -> int:
        """An element that has no place by itself; behind it."""
        name, type_, at = data[begin + 1 : name_end], data[begin], name_end + 1
        value = Value(type_, at, rb.end_of(data, type_, at))
        if name in self._dropped:
            return value.end
        if name in self._masked:
            if type_ != rb.NULL:
                row[self._masked[name]] = _bare(data, value)
            return value.end
        if name != _ID and type_ != rb.NULL and self._is_growing and self._may_grow(data, name, value):
            raise Grows
        self._keep(data, name, value, rest)
        return value.end

    def _may_grow(self, data: bytes, name: bytes, value: Value) -> bool:
        known = self._types.get(name)
        if known is None:
            return is_nameable(name) and (len(self._types) < self._room)
        return widened(known, type_of(data, value)) is not known

    def _keep(self, data: bytes, name: bytes, value: Value, rest: list[str]) -> None:
        if name == _ID:
            raise OtherIdError(
                f"{self.shape.name}: an `_id` of another type than those before it",
                hint=f"add {self.shape.name} to `ids_as_json`: its column `_id` then holds them all",
            )
        if name in self._hidden_ahead:
            return  # masked, and without a column: no value of it was ever to be shown
        rest.append(f"{quoted(extended.name_text(name))}:{extended.text(data, value)}")

    def _wrong(self, what: str, hint: str) -> CodecError:
        return CodecError(f"{self.shape.name}: {what}", hint=hint)


def _bare(data: bytes, value: Value) -> Any:
    """For a mask: a text without quotes, and an ObjectId as its hexadecimal text, so that equal values stay equal."""
    if value.type == rb.STRING:
        return rb.string(data, value)
    if value.type == rb.OBJECT_ID:
        return data[value.at : value.end].hex()
    return extended.text(data, value)
