"""A column as the data dictionary describes it, and the type that it is published under."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from lowwater.codec import table as t
from lowwater.codec.table import Type

#: beyond this Parquet readers know no decimal: the value stays text
DECIMAL_DIGITS_MAX = 76
#: NUMBER(*,s) and INTEGER have this many digits
NUMBER_DIGITS = 38
#: whole numbers up to this many digits fit 32 and 64 bits
INT32_DIGITS = 9
INT64_DIGITS = 18
#: published timestamps have microseconds; a column with more digits is text, so that nothing is cut off
FRACTION_DIGITS_MAX = 6


class OracleType(IntEnum):
    """COL$.TYPE#"""

    VARCHAR2 = 1
    NUMBER = 2
    LONG = 8
    DATE = 12
    RAW = 23
    LONG_RAW = 24
    OPAQUE = 58
    ROWID = 69
    CHAR = 96
    BINARY_FLOAT = 100
    BINARY_DOUBLE = 101
    REF = 111
    CLOB = 112
    BLOB = 113
    BFILE = 114
    JSON = 119
    OBJECT = 121
    NESTED_TABLE = 122
    VARRAY = 123
    VECTOR = 127
    TIMESTAMP = 180
    TIMESTAMP_TZ = 181
    INTERVAL_YM = 182
    INTERVAL_DS = 183
    UROWID = 208
    TIMESTAMP_LTZ = 231
    BOOLEAN = 252


#: COL$.CHARSETFORM: the database's character set, or the national one
DATABASE_FORM, NATIONAL_FORM = 1, 2

CHARACTERS = frozenset({OracleType.VARCHAR2, OracleType.CHAR, OracleType.LONG, OracleType.CLOB})
LOBS = frozenset({OracleType.CLOB, OracleType.BLOB})
#: the log has no value of these that could be read: always `unchanged`, with this reason
NOT_IN_LOG: dict[int, str] = {
    OracleType.OPAQUE: "an XMLTYPE or another opaque type",
    OracleType.REF: "a REF",
    OracleType.BFILE: "a BFILE: the data is outside of the database",
    OracleType.JSON: "the JSON type in its binary form",
    OracleType.OBJECT: "an object type",
    OracleType.NESTED_TABLE: "a nested table: its rows are in a table of their own",
    OracleType.VARRAY: "a VARRAY",
    OracleType.VECTOR: "a VECTOR",
}


@dataclass(frozen=True, slots=True)
class OracleColumn:
    name: str
    #: SEGCOL#, from 1: the place in the rows. 0: virtual, never in a row. Not COL#, which changes with DROP COLUMN
    number: int
    #: TYPE#
    type: int
    length: int = 0
    #: of a NUMBER; of timestamps and intervals `scale` is the digits of the second's fraction
    precision: int | None = None
    scale: int | None = None
    nullable: bool = True
    charset_form: int = 0
    #: the character set that the form means in this container
    charset: str = ""
    #: DBTIMEZONE: what a TIMESTAMP WITH LOCAL TIME ZONE is stored in
    zone: str = "+00:00"
    #: ECOL$.BINARYDEFVAL: the value of rows that are older than the column and do not have it
    default: bytes | None = None
    #: ECOL$.GUARD_ID: the bit in the table's guard column which says that this row has its own value, a NULL too
    guard: int | None = None
    #: in the rows, but not to be seen: set unused, or the system's own
    is_hidden: bool = False
    #: the hidden RAW column that holds the guard bits
    is_guard: bool = False
    #: a VARCHAR2 or RAW above 4000 bytes, which is stored as a LOB (PROPERTY has 128)
    is_lob: bool = False
    #: why the log has no value that can be read, beyond what the type says: an encrypted or compressed LOB
    unreadable: str = ""
    #: the operator wants the value as text, whatever its type
    as_text: bool = False
    #: what a text that is not of its character set becomes: "strict" stops the source, "replace" puts U+FFFD
    on_bad_text: str = "strict"


def number_type(precision: int | None, scale: int | None) -> Type:
    """NUMBER(p,s). Without precision and scale, or as FLOAT(p) (no scale), it has any number of digits: text."""
    if scale is None:
        return t.STRING
    digits = NUMBER_DIGITS if precision is None else precision
    # NUMBER(3,-2) holds hundreds up to 99900, NUMBER(2,4) nothing above 0.0099
    digits = max(digits - min(scale, 0), scale)
    if digits > DECIMAL_DIGITS_MAX:
        return t.STRING
    if scale <= 0 and digits <= INT32_DIGITS:
        return t.INT32
    if scale <= 0 and digits <= INT64_DIGITS:
        return t.INT64
    return t.decimal(digits, max(scale, 0))


_SIMPLE: dict[int, Type] = {
    OracleType.RAW: t.BYTES,
    OracleType.LONG_RAW: t.BYTES,
    OracleType.BLOB: t.BYTES,
    OracleType.BINARY_FLOAT: t.FLOAT32,
    OracleType.BINARY_DOUBLE: t.FLOAT64,
    OracleType.DATE: t.TIMESTAMP,
    OracleType.TIMESTAMP: t.TIMESTAMP,
    OracleType.TIMESTAMP_TZ: t.TIMESTAMPTZ,
    OracleType.TIMESTAMP_LTZ: t.TIMESTAMPTZ,
    OracleType.BOOLEAN: t.BOOLEAN,
    OracleType.JSON: t.JSON,
}
_TIMES = frozenset({OracleType.TIMESTAMP, OracleType.TIMESTAMP_TZ, OracleType.TIMESTAMP_LTZ})


def has_locator(column: OracleColumn) -> bool:
    """The row holds a LOB locator, with the value in it or elsewhere."""
    return column.is_lob or column.type in LOBS


def why_unreadable(column: OracleColumn) -> str:
    """Why no value of this column can be had from the log; empty if it can."""
    return column.unreadable or NOT_IN_LOG.get(column.type, "")


def published_type(column: OracleColumn) -> Type:
    if column.as_text and column.type not in LOBS:
        return t.STRING
    if column.type == OracleType.NUMBER:
        return number_type(column.precision, column.scale)
    if column.type in _TIMES and (column.scale or 0) > FRACTION_DIGITS_MAX:
        return t.STRING
    return _SIMPLE.get(column.type, t.STRING)
