"""Confluent wire format: a zero byte, the schema id in four bytes, Avro."""

from __future__ import annotations

import struct

from lowwater.errors import CodecError
from lowwater.records.ids import SchemaId

HEADER_SIZE = 5
_HEADER = struct.Struct(">bI")


def header(schema_id: SchemaId) -> bytes:
    return _HEADER.pack(0, schema_id)


def schema_id_of(value: bytes) -> SchemaId:
    if len(value) < HEADER_SIZE or value[0] != 0:
        raise CodecError(
            f"not a record of lowwater: it begins with {value[:HEADER_SIZE]!r}",
            hint="another application writes to this topic; use separate topics for lowwater",
        )
    return SchemaId(_HEADER.unpack_from(value)[1])
