"""The columns of a collection, which are added as documents are read, and the conversion of documents to rows.

Every table has `_id`, which is its key, a column for each field, and `_rest`: extended JSON of all parts of a document
that are in no column. A field that is null is in `_rest`, a missing field is not, so that the two can be distinguished.
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
#: fields with longer names have no column, and are in `_rest`
NAME_BYTES_MAX = 200


@dataclass(frozen=True, slots=True)
class Shape:
    """The known fields of a collection. `fields` is in the order in which they were first read."""

    namespace: str
    collection: str
    #: None: no document was read
    id_type: FieldType | None = None
    fields: dict[str, FieldType] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.collection}"

    def grown(self, data: bytes, at: int, columns_max: int) -> Shape:
        """Return the shape with the additional fields of a document."""
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
        """Return the table; columns of `masked` fields are strings, because masks accept values of every type."""
        columns = [Column(ID, COLUMN_TYPES[self.id_type or FieldType.OBJECT_ID], nullable=False)]
        columns += [Column(n, t.STRING if n in masked else COLUMN_TYPES[type_]) for n, type_ in self.fields.items()]
        columns.append(Column(REST, t.JSON))
        return TableSchema(source, self.namespace, self.collection, 0, tuple(columns), (ID,))

    def pack(self) -> bytes:
        """Encode the shape, compactly: it is stored with the position and in every chunk."""
        return json.dumps({"id": self.id_type, "fields": self.fields}, ensure_ascii=False).encode()

    @classmethod
    def unpack(cls, namespace: str, collection: str, data: bytes) -> Shape:
        try:
            found: dict[str, Any] = json.loads(data)
            fields = {name: FieldType(type_) for name, type_ in found["fields"].items()}
            return cls(namespace, collection, FieldType(found["id"]) if found["id"] else None, fields)
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                f"the stored columns of {namespace}.{collection} cannot be read: {error}",
                hint="were they written by a newer lowwater? upgrade this one",
            ) from error


def id_type_in(data: bytes) -> FieldType | None:
    """Return the type of the column `_id` for this document alone; None if it has no `_id`."""
    return next((id_type_of(data, value) for raw, value in rb.elements(data, 0) if raw == _ID), None)


def is_nameable(raw: bytes) -> bool:
    """Return whether a field can have a column."""
    return 0 < len(raw) <= NAME_BYTES_MAX and raw != REST.encode()


class OtherIdError(CodecError):
    """An `_id` of a type that its column cannot hold; a column of JSON holds all types."""

    @classmethod
    def of(cls, table: str) -> OtherIdError:
        return cls(
            f"{table}: an `_id` of another type than those before it",
            hint=f"add {table} to `ids_as_json`: its column `_id` then holds all types",
        )


class Grows(Exception):
    """A document has a field or type for which the collection's shape must be extended."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Fields that must not be published, neither in a column nor in `_rest`."""

    dropped: frozenset[str] = frozenset()
    masked: frozenset[str] = frozenset()

    @classmethod
    def of(cls, rules: ColumnRules, table: str) -> Hidden:
        def names(rules: Iterable[str]) -> frozenset[str]:
            found = frozenset(name.removeprefix(f"{table}.") for name in rules if name.startswith(f"{table}."))
            # rules for the columns `_rest` and `_id` are applied to the column itself
            return found - {REST, ID}

        return cls(names(rules.drop), names(rules.mask or {}))


class RowReader:
    """Converts documents to rows of one shape, with values for the encoder."""

    def __init__(self, shape: Shape, hidden: Hidden, columns_max: int, *, is_growing: bool = True) -> None:
        self.shape = shape
        self._is_growing = is_growing
        self._room = columns_max
        self._dropped = {name.encode() for name in hidden.dropped}
        self._masked = {name.encode(): 1 + n for n, name in enumerate(shape.fields) if name in hidden.masked}
        self._hidden_ahead = {name.encode() for name in hidden.masked}
        self._types = {name.encode(): type_ for name, type_ in shape.fields.items()}
        self._blank: list[Any] = [None] * (len(shape.fields) + 2)
        #: type and name of an element → index in the row, size of the value, conversion
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
        """Return the row of the document at offset `at`.

        Grows: the shape must be extended. OtherIdError: an `_id` of another type.
        """
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
                    raise Misfit  # a duplicate name
                row[place] = convert(data, at, end)
            except Misfit:
                self._keep(data, data[begin + 1 : name_end], Value(data[begin], at, end), rest)
            at = end
        if at != last or last >= len(data) or data[last]:
            raise self._wrong("a BSON document whose length is wrong", "restart the source; report it")
        if row[0] is None:
            raise self._wrong("a document without an `_id`", "report it")
        if rest:
            row[-1] = "{" + ",".join(rest) + "}"
        return row

    def _other(self, data: bytes, begin: int, name_end: int, row: list[Any], rest: list[str]) -> int:
        """Process an element that is not in `_plain`; returns the offset after it."""
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
            raise OtherIdError.of(self.shape.name)
        if name in self._hidden_ahead:
            return  # masked, and without a column: it must not be in `_rest` either
        rest.append(f"{quoted(extended.name_text(name))}:{extended.text(data, value)}")

    def _wrong(self, what: str, hint: str) -> CodecError:
        return CodecError(f"{self.shape.name}: {what}", hint=hint)


def _bare(data: bytes, value: Value) -> Any:
    """Return a value for a mask: a text without quotes, an ObjectId as hexadecimal, so that equal values stay equal."""
    if value.type == rb.STRING:
        return rb.string(data, value)
    if value.type == rb.OBJECT_ID:
        return data[value.at : value.end].hex()
    return extended.text(data, value)
