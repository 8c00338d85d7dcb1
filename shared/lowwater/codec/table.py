"""Tables and the types of their columns, as the records know them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: of a kind whose tables grow columns from what is seen: whatever of a row is in no column, as JSON
REST = "_rest"


class ColumnKind(StrEnum):
    BOOLEAN = "boolean"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    #: without a zone: what the clock on the wall showed
    TIMESTAMP = "timestamp"
    #: an instant
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    JSON = "json"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Type:
    """The Python values that the encoder takes:

    boolean bool · int32, int64 int · float32, float64 float · decimal `decimal.Decimal` or int (whole
    number) · string, json str, or bytes that are UTF-8 · bytes bytes · date `datetime.date` or int (days since 1970) ·
    time `datetime.time` or int (µs since midnight) · timestamp, timestamptz `datetime` or int (µs since
    1970) · uuid `uuid.UUID`, str, or its text as bytes · array list (items may be None).
    """

    kind: ColumnKind
    precision: int = 0
    scale: int = 0
    item: Type | None = None


BOOLEAN = Type(ColumnKind.BOOLEAN)
INT32 = Type(ColumnKind.INT32)
INT64 = Type(ColumnKind.INT64)
FLOAT32 = Type(ColumnKind.FLOAT32)
FLOAT64 = Type(ColumnKind.FLOAT64)
STRING = Type(ColumnKind.STRING)
BYTES = Type(ColumnKind.BYTES)
DATE = Type(ColumnKind.DATE)
TIME = Type(ColumnKind.TIME)
TIMESTAMP = Type(ColumnKind.TIMESTAMP)
TIMESTAMPTZ = Type(ColumnKind.TIMESTAMPTZ)
UUID = Type(ColumnKind.UUID)
JSON = Type(ColumnKind.JSON)


def decimal(precision: int, scale: int) -> Type:
    return Type(ColumnKind.DECIMAL, precision=precision, scale=scale)


def array(item: Type) -> Type:
    return Type(ColumnKind.ARRAY, item=item)


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: Type
    #: as the source declares it; the record is nullable all the same, because `before` may be only a key
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of one table."""

    source: str
    namespace: str
    table: str
    version: int
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.table}"
