"""What a PostgreSQL type becomes. `docs/postgres.md` has this as a table."""

from __future__ import annotations

from dataclasses import dataclass

from lowwater.codec import table as t
from lowwater.codec.table import ColumnKind, Type
from lowwater_extractor.sources.postgres.wire import text_values as tv
from lowwater_extractor.sources.postgres.wire.text_values import Convert

#: beyond this Parquet readers know no decimal: the value stays text
DECIMAL_DIGITS_MAX = 76
#: types below this oid are PostgreSQL's own, and the same in every database
FIRST_USER_OID = 16_384

_TEXT: Convert = bytes

_SIMPLE: dict[str, tuple[Type, Convert]] = {
    "bool": (t.BOOLEAN, tv.boolean),
    "int2": (t.INT32, int),
    "int4": (t.INT32, int),
    "int8": (t.INT64, int),
    "oid": (t.INT64, int),
    "float4": (t.FLOAT32, float),
    "float8": (t.FLOAT64, float),
    "bytea": (t.BYTES, tv.binary),
    "date": (t.DATE, tv.days),
    "time": (t.TIME, tv.time),
    "timestamp": (t.TIMESTAMP, tv.timestamp),
    "timestamptz": (t.TIMESTAMPTZ, tv.instant),
    "uuid": (t.UUID, _TEXT),
    "json": (t.JSON, _TEXT),
    "jsonb": (t.JSON, _TEXT),
    "money": (t.decimal(19, 2), tv.money),
    "geometry": (t.BYTES, tv.bare_hex),
    "geography": (t.BYTES, tv.bare_hex),
}


@dataclass(frozen=True, slots=True)
class PgType:
    """A row of pg_type, with domains already taken down to what they are made of."""

    oid: int
    name: str
    #: of an array: what its items are
    item: PgType | None = None
    delimiter: str = ","
    #: of a domain: the modifier and the dimensions that it fixes
    typmod: int = -1
    dimensions: int = 0
    #: False of one that the catalogue does not show: it was dropped, or is not visible yet
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class ColumnType:
    """How a column is published, and how its text becomes a value."""

    type: Type
    convert: Convert
    #: the server's own text, because there is no better type: as it is
    is_text: bool


def _decimal(typmod: int) -> Type | None:
    """None: any number of digits."""
    if typmod < 4:
        return None
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024
    # numeric(3,-2) holds hundreds up to 99900, numeric(2,4) nothing above 0.0099
    digits = max(precision - min(scale, 0), scale)
    return t.decimal(digits, max(scale, 0)) if digits <= DECIMAL_DIGITS_MAX else None


def column_type(pg: PgType, typmod: int, dimensions: int = 0, *, as_text: bool = False) -> ColumnType:
    """Everything has a text form, so a type that is not known here is not lost: it is text."""
    if as_text:
        return ColumnType(t.STRING, _TEXT, is_text=True)
    if typmod < 0:
        typmod = pg.typmod
    if pg.item is not None:
        item = column_type(pg.item, typmod)
        depth = max(1, dimensions, pg.dimensions)
        type_ = item.type
        for _ in range(depth):
            type_ = t.array(type_)
        return ColumnType(type_, tv.array(depth, item.convert, pg.delimiter.encode()), is_text=False)
    if pg.name == "numeric":
        decimal = _decimal(typmod)
        if decimal is None:
            return ColumnType(t.STRING, _TEXT, is_text=True)
        return ColumnType(decimal, tv.numeric, is_text=False)
    found = _SIMPLE.get(pg.name)
    if found is None:
        return ColumnType(t.STRING, _TEXT, is_text=True)
    return ColumnType(*found, is_text=found[0].kind is ColumnKind.JSON)
