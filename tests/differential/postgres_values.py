"""PostgreSQL's types: literals with edge values, and how the server's values become canonical ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.differential.compare import decimal, float32, float64, nested, of_json, same

#: of dates and times: what the lake keeps for infinity (docs/postgres.md)
_DATE_MAX, _TIME_MAX = (1 << 31) - 1, (1 << 63) - 1


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _texts(rng: random.Random) -> str:
    short = ["", "a", "é€𝄞", 'it\'s "quoted"', "two\nlines\t\\n", "null", "NULL", " "]
    # larger than a page, and not to be compressed: kept out of line
    long = f"(SELECT string_agg(md5((i + {rng.randrange(999)})::text), '') FROM generate_series(1, 200) i)"
    return long if rng.random() < 0.15 else text_literal(rng.choice(short))


def _one_of(*literals: str) -> Callable[[random.Random], str]:
    return lambda rng: rng.choice(literals)


def _quoted(*texts: str) -> Callable[[random.Random], str]:
    return lambda rng: text_literal(rng.choice(texts))


def _whole(low: int, high: int) -> Callable[[random.Random], str]:
    return lambda rng: str(rng.choice([low, high, 0, -1 if low else 1, 1, rng.randint(low, high), rng.randrange(100)]))


#: by the type's name as it is written in statements
LITERALS: Mapping[str, Callable[[random.Random], str]] = {
    "smallint": _whole(-(1 << 15), (1 << 15) - 1),
    "integer": _whole(-(1 << 31), (1 << 31) - 1),
    "bigint": _whole(-(1 << 63), (1 << 63) - 1),
    "oid": _whole(0, (1 << 32) - 1),
    "boolean": _one_of("true", "false"),
    "numeric(20,4)": _one_of("0", "-0.0001", "9999999999999999.9999", "-9999999999999999.9999", "1.5", "0.00005"),
    "numeric(5,-2)": _one_of("0", "1234567", "-149", "150"),
    "numeric(50,10)": _one_of("0", "1" * 40 + ".0000000001", "-" + "9" * 40),
    "numeric": _quoted("0", "-0.00", "1.10", "NaN", "Infinity", "-Infinity", "1e50", "0." + "0" * 40 + "1"),
    "money": _quoted("0", "-0.01", "92233720368547758.07", "-92233720368547758.08", "1234.5"),
    "real": _quoted("0", "-0", "NaN", "Infinity", "-Infinity", "0.1", "1e-45", "3.4028235e38", "16777217"),
    "double precision": _quoted("0", "-0", "NaN", "Infinity", "-Infinity", "0.1", "5e-324", "1.7976931348623157e308"),
    "text": _texts,
    "character varying(20)": _quoted("", "a", "x" * 20, "éé", "tail  "),
    "character(5)": _quoted("", "a", "ab  ", "xxxxx", "é"),
    "name": _quoted("", "n", "é"),
    "bytea": _quoted("\\x", "\\x00", "\\x00ff10", "\\x" + "ab" * 40, "\\x5c5c27"),
    "date": _quoted("1970-01-01", "0001-01-01 BC", "4713-01-01 BC", "5874897-12-31", "infinity", "-infinity"),
    "timestamp without time zone": _quoted(
        "1970-01-01", "1969-12-31 23:59:59.999999", "4713-01-01 BC", "294246-12-31 23:59:59.999999", "infinity",
        "-infinity", "2026-03-29 02:30:00.5",
    ),
    "timestamp with time zone": _quoted(
        "1970-01-01 00:00:00+14", "1969-12-31 23:59:59.999999+00", "4713-02-01 BC", "294246-12-31 23:59:59+00",
        "infinity", "-infinity", "2026-10-25 02:30:00+02",
    ),
    "time without time zone": _quoted("00:00", "23:59:59.999999", "12:34:56.7"),
    "time with time zone": _quoted("00:00+00", "23:59:59.999999-12", "12:34:56.7+05:30"),
    "interval": _quoted("0", "1 year -2 months 3 days -04:05:06.7", "-1 microsecond", "178000000 years", "30 days"),
    "uuid": _quoted("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
                    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "json": _quoted("null", "{}", '{"a": 1, "a": 2, "b": [1.0, 1e400, -0.0]}', '"é\\u0001"', "[]", "  1 "),
    "jsonb": _quoted("null", "{}", '{"a": 1, "b": [1.0, 1e300, -0.0, true, 1]}', '"é\\n"', "[]", "1" * 30),
    "xml": _quoted("<a/>", "<a b='1'>é</a>", "text"),
    "inet": _quoted("0.0.0.0/0", "10.0.0.1", "::1", "fe80::1/64"),
    "cidr": _quoted("10.0.0.0/8", "::/0"),
    "macaddr": _quoted("08:00:2b:01:02:03"),
    "bit(8)": _one_of("B'00000000'", "B'10101010'"),
    "bit varying(12)": _one_of("B''", "B'1'", "B'101010101010'"),
    "point": _quoted("(0,0)", "(1e300,-0.5)"),
    "int4range": _quoted("empty", "[1,5)", "(,3]", "(,)"),
    "tsvector": _quoted("", "a:1 b:2"),
    "integer[]": _quoted("{}", "{1,NULL,-2147483648}", "{7}"),
    "text[]": _quoted("{}", '{a,NULL,"nu,ll","quo\\"te",""}', '{"NULL"}'),
    "numeric(20,4)[]": _quoted("{}", "{1.5,NULL,-0.0001}"),
    "mood": _one_of("(enum_range(NULL::mood))[1]", "(enum_range(NULL::mood))[3]"),
    "positive": _one_of("1", "2147483647", "7"),
}  # fmt: skip

#: what a key's new values are taken from: few, so that statements meet the rows of others
KEYS: Mapping[str, Callable[[random.Random], str]] = {
    **LITERALS,
    "smallint": lambda rng: str(rng.randrange(1, 60)),
    "integer": lambda rng: str(rng.randrange(1, 60)),
    "bigint": lambda rng: str(rng.choice([rng.randrange(1, 60), (1 << 63) - 1 - rng.randrange(5)])),
    "text": lambda rng: text_literal(rng.choice(["", "a", "b", "c", "é", "it's", "A", "a ", "x.y"])),
    "numeric(20,4)": lambda rng: f"{rng.randrange(30)}.{rng.choice(['0', '5', '25'])}",
}
#: for new columns and other types of old ones
COMMON = (
    "integer", "bigint", "text", "numeric(20,4)", "boolean", "double precision", "real", "date", "jsonb", "bytea",
    "timestamp without time zone", "timestamp with time zone", "uuid", "character varying(20)", "numeric", "smallint",
)  # fmt: skip


def literal(rng: random.Random, type_: str, key: bool = False, nulls: float = 0.15) -> str:
    if not key and rng.random() < nulls:
        return "NULL"
    make = (KEYS if key else LITERALS).get(type_)
    return make(rng) if make else "NULL"


def _moment(column: str) -> str:
    return (
        f"CASE WHEN {column} IS NULL THEN NULL"
        f" WHEN isfinite({column}) THEN round(extract(epoch FROM {column}) * 1000000)::bigint"
        f" WHEN {column} > '2000-01-01' THEN {_TIME_MAX} ELSE -{_TIME_MAX} END"
    )


def _date(column: str) -> str:
    return (
        f"CASE WHEN {column} IS NULL THEN NULL WHEN isfinite({column}) THEN {column} - date '1970-01-01'"
        f" WHEN {column} > '2000-01-01' THEN {_DATE_MAX} ELSE -{_DATE_MAX} END"
    )


Reading = tuple[Callable[[str], str], Callable[[Any], Any]]
_PLAIN: Reading = (lambda c: c, same)
# not `::text`: a cast may say it in another way than the type's own output
_TEXT: Reading = (lambda c: f"CASE WHEN {c} IS NOT NULL THEN format('%s', {c}) END", same)
#: by the base type: the expression that the server is asked, and what makes both sides canonical
_READINGS: Mapping[str, Reading] = {
    **dict.fromkeys(("smallint", "integer", "bigint", "oid", "boolean", "character", "bytea"), _PLAIN),
    "real": (lambda c: c, float32),
    "double precision": (lambda c: c, float64),
    "money": (lambda c: f"{c}::numeric(19,2)", decimal),
    "date": (_date, same),
    "timestamp without time zone": (_moment, same),
    "timestamp with time zone": (_moment, same),
    "time without time zone": (lambda c: f"(extract(epoch FROM {c}) * 1000000)::bigint", same),
    "json": (lambda c: f"{c}::text", of_json),
    "jsonb": (lambda c: f"{c}::text", of_json),
    "integer[]": (lambda c: c, nested),
    "text[]": (lambda c: c, nested),
    "numeric[]": (lambda c: c, nested),
}


def reading(base: str, modifier: int) -> Reading:
    """`base`: the type without its modifier, of a domain what it is made of; `modifier`: -1 if it has none."""
    if base == "numeric":
        return _TEXT if modifier < 0 else (lambda c: c, decimal)
    return _READINGS.get(base, _TEXT)


def canonical_row(values: Sequence[Any], made: Sequence[Callable[[Any], Any]]) -> tuple[Any, ...]:
    return tuple(make(bytes(v) if isinstance(v, memoryview) else v) for v, make in zip(values, made, strict=True))
