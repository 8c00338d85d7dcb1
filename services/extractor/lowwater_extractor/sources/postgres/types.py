"""Maps PostgreSQL types to published types. `docs/postgres.md` has the table."""

from __future__ import annotations

from dataclasses import dataclass

from lowwater.codec import table as t
from lowwater.codec.table import ColumnKind, Type
from lowwater_extractor.sources.postgres.wire import text_values as tv
from lowwater_extractor.sources.postgres.wire.text_values import Convert

#: Parquet readers support no wider decimals: such values are captured as text
DECIMAL_DIGITS_MAX = 76
#: types below this oid are built in and the same in every database
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
    """A row of pg_type, with domains resolved to their base type."""

    oid: int
    name: str
    #: element type of an array
    item: PgType | None = None
    delimiter: str = ","
    #: modifier and dimensions that a domain declares
    typmod: int = -1
    dimensions: int = 0
    #: False if the catalogue does not have it: it was dropped, or is not visible yet
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class ColumnType:
    """The published type of a column, and the conversion from its text."""

    type: Type
    convert: Convert
    #: the server's text is published unchanged, because there is no better type
    is_text: bool


def _decimal(typmod: int) -> Type | None:
    """Return None for numeric without precision, or with more than DECIMAL_DIGITS_MAX digits."""
    if typmod < 4:
        return None
    precision = (typmod - 4) >> 16 & 0xFFFF
    scale = ((typmod - 4 & 0x7FF) ^ 1024) - 1024
    # numeric(3,-2) holds hundreds up to 99900, numeric(2,4) nothing above 0.0099
    digits = max(precision - min(scale, 0), scale)
    return t.decimal(digits, max(scale, 0)) if digits <= DECIMAL_DIGITS_MAX else None


def column_type(pg: PgType, typmod: int, dimensions: int = 0, *, as_text: bool = False) -> ColumnType:
    """Return the published type. Types without a mapping are captured as text."""
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
