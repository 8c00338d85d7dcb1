"""The types of MySQL and MariaDB: literals with edge values, and how the server's values become canonical ones."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from tests.differential.compare import decimal, float32, float64, of_json, same


def text_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _bits(rng: random.Random, bits: int, is_unsigned: bool) -> str:
    low, high = (0, (1 << bits) - 1) if is_unsigned else (-(1 << bits - 1), (1 << bits - 1) - 1)
    return str(rng.choice([low, high, 0, 1, rng.randint(low, high), rng.randrange(100)]))


_INTEGERS = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "decimal": ("0", "-0.0001", "99999.9999", "-99999.9999", "1.5", "0.00005"),
    "float": ("0", "-0.0", "0.1", "1e-38", "3.4028e38", "-16777217", "1.17549e-38"),
    "double": ("0", "-0.0", "0.1", "2.2250738585072014e-308", "1.7976931348623157e308", "-123456789.123456789"),
    "bit": ("b'0'", "b'1'"),
    "year": ("1901", "2155", "0", "2041", "1970"),
    "date": ("'1970-01-01'", "'1000-01-01'", "'9999-12-31'", "'1969-12-31'", "'2024-02-29'"),
    "datetime": ("'1970-01-01'", "'1000-01-01'", "'9999-12-31 23:59:59.999999'", "'1969-12-31 23:59:59.5'"),
    "timestamp": ("'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.499999'", "'2026-03-29 02:30:00.25'"),
    "time": ("'00:00:00'", "'838:59:59'", "'-838:59:59'", "'-00:00:00.5'", "'12:34:56.789012'"),
    "json": ("'null'", "'{}'", "'{\"a\": 1, \"b\": [1.0, -0.0, 1e300, 0.1, true]}'", "'\"é\\\\n\"'", "'[]'",
             "'18446744073709551615'", "'-1.5'", "CAST(1.10 AS JSON)", "JSON_ARRAY(CURDATE() - CURDATE(), 'a')"),
    "binary": ("''", "X'00'", "X'00ff'", "X'00ff1027'"),
    "varbinary": ("''", "X'00'", "X'00ff10275c'"),
    "geometry": ("ST_GeomFromText('POINT(1 -2.5)')", "ST_GeomFromText('LINESTRING(0 0, 1 1)', 4326)"),
}  # fmt: skip
_TEXTS = ("", "a", "é€", 'it\'s "quoted"', "two\nlines\t\\n", "NULL", "tail")


def literal(rng: random.Random, type_: str, *, key: bool = False, nulls: float = 0.15) -> str:
    """`type_` as the catalogue writes a column's type."""
    if not key and rng.random() < nulls:
        return "NULL"
    base = re.match(r"[a-z]+", type_.lower())
    name = base.group(0) if base else ""
    if name in _INTEGERS:
        if key:
            return str(rng.randrange(1, 60))
        return _bits(rng, _INTEGERS[name], "unsigned" in type_)
    if name in ("enum", "set"):
        labels = re.findall(r"'((?:[^']|'')*)'", type_)
        some = rng.sample(labels, rng.randrange(len(labels) + 1)) if name == "set" else [rng.choice(labels)]
        return "'" + ",".join(some) + "'"
    if name in ("char", "varchar"):
        return text_literal(rng.choice(["a", "b", "c", "é", "x.y", "A2"] if key else [*_TEXTS, "€" * 10]))
    if name.endswith("text"):
        return f"REPEAT('aé', {rng.choice([100, 3000])})" if rng.random() < 0.15 else text_literal(rng.choice(_TEXTS))
    if name.endswith("blob"):
        return rng.choice(_CHOICES["varbinary"])
    if name == "decimal" and key:
        return str(rng.randrange(30))
    return rng.choice(_CHOICES[name]) if name in _CHOICES else "NULL"


#: of the table with all of them
ALL_TYPES = (
    "tinyint", "tinyint unsigned", "smallint", "smallint unsigned", "mediumint", "mediumint unsigned", "year", "int",
    "int unsigned", "bigint", "bigint unsigned", "decimal(20,4)", "decimal(65,30)", "decimal(9,4) unsigned", "float",
    "double", "bit(1)", "bit(12)", "date", "datetime", "datetime(6)", "timestamp NULL", "timestamp(6) NULL", "time",
    "time(6)", "char(10)", "varchar(20)", "varchar(20) CHARACTER SET latin1", "text", "longtext", "binary(4)",
    "varbinary(20)", "blob", "enum('a','b','it''s','é')", "set('x','y','z')", "json", "geometry",
    "varchar(300) CHARACTER SET utf16", "tinyint(1)", "boolean", "int zerofill",
)  # fmt: skip
#: for new columns and other types of old ones
COMMON = (
    "int", "bigint", "varchar(20)", "text", "decimal(20,4)", "double", "date", "datetime(6)", "year", "int unsigned",
    "bigint unsigned", "json", "varbinary(20)", "enum('a','b')", "time(6)", "bit(3)", "set('x','y')", "float",
)  # fmt: skip

Reading = tuple[Callable[[str], str], Callable[[Any], Any], Callable[[Any], Any]]


def _micros(column: str) -> str:
    return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column})"


def _length(value: Any) -> Any:
    """Of a TIME."""
    return value // dt.timedelta(microseconds=1) if isinstance(value, dt.timedelta) else value


def _labels(value: Any) -> Any:
    return tuple(filter(None, value.split(","))) if isinstance(value, str) else value


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _unsigned(value: Any) -> Any:
    return Decimal(value) if isinstance(value, int) else value


def reading(data_type: str, column_type: str) -> Reading:
    """The expression that the server is asked, what makes its answer canonical, and what makes the lake's so."""

    def asked(column: str) -> str:
        return column

    if data_type in _INTEGERS and "unsigned" in column_type and data_type == "bigint":
        return asked, _unsigned, decimal
    if data_type == "decimal":
        return asked, decimal, decimal
    if data_type == "float":
        # its own text has six digits
        return (lambda c: f"{c} * 1e0"), float32, float32
    if data_type == "double":
        return asked, float64, float64
    if data_type == "bit":
        is_one = column_type == "bit(1)"
        return asked, (lambda v: v == b"\x01" if is_one and v is not None else v), same
    if data_type == "date":
        return (lambda c: f"TO_DAYS({c}) - 719528"), same, same
    if data_type in ("datetime", "timestamp"):
        return _micros, same, same
    if data_type == "time":
        return asked, _length, same
    if data_type == "json":
        return asked, of_json, of_json
    if data_type == "set":
        return asked, _labels, _tuple
    return asked, same, same
