"""Tables and the types of their columns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

#: column of source kinds that derive columns from documents: fields without a column of their own, as JSON
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
    #: local time, without a time zone
    TIMESTAMP = "timestamp"
    #: an instant
    TIMESTAMPTZ = "timestamptz"
    UUID = "uuid"
    JSON = "json"
    ARRAY = "array"


@dataclass(frozen=True, slots=True)
class Type:
    """The type of a column. The encoder accepts these Python values:

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
    #: as declared in the source; the Avro field is nullable in any case, because `before` may contain only the key
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
