"""Every type: what is published is what the database says of the same value, asked another way."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any, NamedTuple

import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.integration.postgres.reading import reading, source_of
from tests.support.postgres import Database

INFINITY_US, INFINITY_DAYS = (1 << 63) - 1, (1 << 31) - 1
#: how a value is asked for: as the driver knows it, as text, as a number since 1970
PLAIN, TEXT = "{c}", "{c}::text"
DAYS = f"CASE {{c}} WHEN 'infinity' THEN {INFINITY_DAYS} WHEN '-infinity' THEN -{INFINITY_DAYS} \
ELSE {{c}} - date '1970-01-01' END"
MICROS = f"CASE {{c}} WHEN 'infinity' THEN {INFINITY_US} WHEN '-infinity' THEN -{INFINITY_US} \
ELSE (extract(epoch FROM {{c}}) * 1000000)::int8 END"
TIME = "(extract(epoch FROM {c}) * 1000000)::int8"
NUMBER = "{c}::numeric"
INSTANTS = "ARRAY(SELECT (extract(epoch FROM x) * 1000000)::int8 FROM unnest({c}) WITH ORDINALITY u(x, n) ORDER BY n)"

LONG_AGO = ["4713-11-24 00:00:00 BC", "0044-03-15 12:34:56.789 BC", "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999"]
NOW = ["1970-01-01 00:00:00", "2026-11-16 11:40:15.25", "2024-02-29 00:00:00.000001"]
FAR = ["9999-12-31 23:59:59.999999", "10000-01-01 00:00:00", "294247-01-10 04:00:54.775806", "infinity", "-infinity"]
DATES = ["4713-11-24 BC", "0001-02-28 BC", "0001-01-01", "1969-12-31", "2024-02-29", "5874897-12-31", *FAR[-2:]]
TEXTS = ["", " ", "NULL", "é ß 漢字 🎉", "a\tb\nc\\d\"e'f", "{a,b}", "x" * 20_000]


class Typed(NamedTuple):
    type: str
    asked: str
    values: list[str]


TYPES = {
    "i2": Typed("smallint", PLAIN, ["-32768", "32767", "0"]),
    "i4": Typed("int", PLAIN, ["-2147483648", "2147483647", "8192"]),
    "i8": Typed("bigint", PLAIN, ["-9223372036854775808", "9223372036854775807", "268435456"]),
    "o": Typed("oid", PLAIN, ["0", "4294967295"]),
    "n": Typed("numeric", TEXT, ["1.50", "NaN", "-0.00", "1e100", "0.00000000000000000001"]),
    "n10": Typed("numeric(10,2)", PLAIN, ["1.5", "-99999999.99", "0"]),
    "n76": Typed("numeric(76,10)", PLAIN, ["9" * 66 + "." + "9" * 10, "-0.0000000001"]),
    "n80": Typed("numeric(80,2)", TEXT, ["9" * 78 + ".99"]),
    "f4": Typed("real", "{c}::float8", ["1.1", "NaN", "Infinity", "-Infinity", "1e-45", "-0"]),
    "f8": Typed("double precision", PLAIN, ["0.1", "NaN", "Infinity", "-Infinity", "5e-324", "1.7976931348623157e308"]),
    "t": Typed("text", PLAIN, TEXTS),
    "vc": Typed("varchar(30)", PLAIN, TEXTS[:6]),
    "c": Typed("char(5)", PLAIN, ["a", "", "abcde"]),
    "qc": Typed('"char"', TEXT, ["a", ""]),
    "nm": Typed("name", PLAIN, ["a name"]),
    "b": Typed("boolean", PLAIN, ["t", "f"]),
    "by": Typed("bytea", PLAIN, ["\\x", "\\x00ff27225c", "\\x" + "ab" * 5000]),
    "d": Typed("date", DAYS, DATES),
    "ti": Typed("time", TIME, ["00:00:00", "23:59:59.999999", "12:00:00.5"]),
    "tz": Typed("timetz", TEXT, ["12:00:00.5+05:30"]),
    "ts": Typed("timestamp", MICROS, [*LONG_AGO, *NOW, *FAR]),
    "tsz": Typed("timestamptz", MICROS, [*LONG_AGO, *NOW, *FAR, "2026-06-01 12:00:00+05:30"]),
    "iv": Typed("interval", TEXT, ["1 year 2 mons -3 days 04:05:06.789", "0", "-178000000 years"]),
    "u": Typed("uuid", PLAIN, [str(uuid.UUID(int=n)) for n in (0, 1 << 127)]),
    "j": Typed("json", TEXT, ['{"b": 1,  "a": [null, "é\\u0000"]}', "null", "1.50"]),
    "jb": Typed("jsonb", TEXT, ['{"b": 1, "a": [null, "é"]}', '"x"']),
    "m": Typed("money", NUMBER, ["1234567.89", "-0.05", "92233720368547758.07"]),
    "e": Typed("mood", TEXT, ["sad", 'ha"ppy']),
    "di": Typed("whole", PLAIN, ["7"]),
    "dn": Typed("price", PLAIN, ["1.25"]),
    "dt": Typed("word", PLAIN, ["é"]),
    "dd": Typed("cheap", PLAIN, ["0.5"]),
    "dm": Typed("matrix", PLAIN, ["{{1,2},{3,4}}", "{}"]),
    "ai": Typed("int[]", PLAIN, ["{1,NULL,-3}", "{}", "[0:1]={7,8}"]),
    "a2": Typed("int[][]", PLAIN, ["{{1,2},{3,NULL}}", "{}"]),
    "at": Typed("text[]", PLAIN, ['{a,"NULL",NULL,"","b \\"c\\" \\\\ d",é}']),
    "at2": Typed("text[][]", PLAIN, ['{{a,b},{"{",NULL}}']),
    "an": Typed("numeric(10,2)[]", PLAIN, ["{1.5,NULL,-2}"]),
    "ab": Typed("bytea[]", PLAIN, ['{"\\\\x00ff",NULL}']),
    "atz": Typed("timestamptz[]", INSTANTS, ['{"2026-11-16 11:40:15.25+00","0044-03-15 00:00:00 BC"}']),
    "adn": Typed("price[]", "{c}::numeric[]", ["{1.25,NULL}"]),
    "ae": Typed("mood[]", "{c}::text[]", ['{sad,"ha\\"ppy"}']),
    "abx": Typed("box[]", "{c}::text[]", ["{(1,1),(0,0);(2,2),(1,1)}"]),
    "iv2": Typed("int2vector", TEXT, ["1 2 3"]),
    "r": Typed("int4range", TEXT, ["[1,5)", "empty", "(,3)"]),
    "rz": Typed("tstzrange", TEXT, ["[2026-01-01 00:00:00+00,)"]),
    "mr": Typed("int4multirange", TEXT, ["{[1,3),[5,9)}"]),
    "bi": Typed("bit(5)", TEXT, ["10101"]),
    "vb": Typed("varbit", TEXT, ["1", ""]),
    "ip": Typed("inet", "concat({c})", ["10.0.0.1", "::1/64"]),
    "ci": Typed("cidr", TEXT, ["10.0.0.0/8"]),
    "ma": Typed("macaddr", TEXT, ["08:00:2b:01:02:03"]),
    "co": Typed("pair", TEXT, ['(1,"a ""b"", c")', "(,)"]),
    "p": Typed("point", TEXT, ["(1.5,-2)"]),
    "tv": Typed("tsvector", TEXT, ["'a':1 'b':2"]),
    "l": Typed("pg_lsn", TEXT, ["16/B374D848"]),
}  # fmt: skip

MADE = """
CREATE TYPE mood AS ENUM ('sad', 'ha"ppy'); CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN whole AS int CHECK (VALUE > 0); CREATE DOMAIN price AS numeric(8, 2); CREATE DOMAIN cheap AS price;
CREATE DOMAIN word AS text; CREATE DOMAIN matrix AS int[][]"""


def _types(database: Database) -> dict[str, Typed]:
    """All, and those that this server was built with."""
    types = dict(TYPES)
    if database.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'hstore'"):
        database.execute("CREATE EXTENSION hstore")
        types["h"] = Typed("hstore", TEXT, ['"a"=>"1", "b"=>NULL'])
    try:
        database.execute("SELECT '<a/>'::xml")
        types["x"] = Typed("xml", TEXT, ["<a>é</a>"])
    except psycopg.errors.FeatureNotSupported:
        pass
    return types


def _plain(value: Any) -> Any:
    """Comparable: a NaN is equal to itself, -0.0 is not 0.0, and floats of both sides have one form."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def test_values_of_every_type_are_those_of_the_database(database: Database) -> None:
    database.execute(MADE)
    types = _types(database)
    declared = ", ".join(f"{name} {typed.type}" for name, typed in types.items())
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, {declared})")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    count = max(len(typed.values) for typed in types.values())
    with reading(database) as read, database.connect() as connection:
        places = ", ".join(f"%s::{typed.type}" for typed in types.values())
        for row in range(count):
            values = [typed.values[row % len(typed.values)] for typed in types.values()]
            connection.execute(f"INSERT INTO t VALUES ({row}, {places})".encode(), values)
        connection.execute(f"INSERT INTO t VALUES ({count})".encode())
        inserted = [changes[0].after or {} for changes in read.new()]
        for setting in ("timezone = 'UTC'", "intervalstyle = 'iso_8601'", "extra_float_digits = 3"):
            connection.execute(f"SET {setting}".encode())
        asked = ", ".join(typed.asked.format(c=name) for name, typed in types.items())
        wanted = connection.execute(f"SELECT {asked} FROM t ORDER BY id".encode()).fetchall()
        # both rows of an update and the row of a delete come through the same way
        connection.execute("UPDATE t SET id = id + 1000")
        updated = read.one()
        connection.execute("DELETE FROM t")
        deleted = read.one()
        versions = read.encoders.versions("t")
    assert len(inserted) == count + 1
    for column, name in enumerate(types):
        found = [_plain(row[name]) for row in inserted]
        assert found == [_plain(row[column]) for row in wanted[:-1]] + [None], f"{name}: {types[name].type}"
    # a statement meets rows in the order in which they lie
    updated.sort(key=lambda change: (change.after or {})["id"])
    deleted.sort(key=lambda change: (change.before or {})["id"])
    assert [repr({**(c.before or {}), "id": 0}) for c in updated] == [repr({**row, "id": 0}) for row in inserted]
    assert [repr({**(c.after or {}), "id": 0}) for c in updated] == [repr({**row, "id": 0}) for row in inserted]
    assert [repr(c.before) for c in deleted] == [repr(c.after) for c in updated]
    (discovered,) = (table for table in source_of(database).discover() if table.table == "t")
    assert [(t.columns, t.key) for t in versions] == [(discovered.columns, discovered.key)], "a copy has the same types"


ROWS = st.tuples(
    st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    st.none() | st.floats(),
    st.none() | st.floats(width=32),
    st.none() | st.decimals(min_value=-(10**18), max_value=10**18, places=10),
    st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8")),
    st.none() | st.binary(),
    st.none() | st.datetimes(timezones=st.just(dt.UTC)),
    st.none() | st.datetimes(),
    st.none() | st.dates(),
    st.none() | st.times(),
    st.none() | st.uuids(),
    st.none() | st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"))),
    st.none() | st.lists(st.none() | st.decimals(min_value=-(10**7), max_value=10**7, places=2)),
)
COLUMNS = (
    "i int8, f float8, g float4, n numeric(30,10), t text, b bytea, tz timestamptz, ts timestamp, d date, ti time, \
u uuid, at text[], an numeric(10,2)[]"
)


def _published(value: Any) -> Any:
    """What the documentation says that a value of the driver becomes."""
    if isinstance(value, dt.datetime):
        epoch = dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)
        return (value - epoch) // dt.timedelta(microseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days
    if isinstance(value, dt.time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    if isinstance(value, Decimal) and not value:
        return abs(value)
    if isinstance(value, list):
        return [_published(item) for item in value]
    return repr(value) if isinstance(value, float) else value


def test_any_values_come_through(database: Database) -> None:
    database.execute(f"CREATE TABLE t (id serial PRIMARY KEY, {COLUMNS})")
    places = ", ".join(["%s"] * len(COLUMNS.split(", ")))
    with reading(database) as read, database.connect() as connection:

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.lists(ROWS, min_size=1, max_size=20))
        def check(rows: list[tuple[Any, ...]]) -> None:
            with connection.transaction():
                for row in rows:
                    connection.execute(f"INSERT INTO t VALUES (DEFAULT, {places})".encode(), row)
            found = [list((change.after or {}).values())[1:] for change in read.one()]
            assert [[_published(v) for v in row] for row in found] == [[_published(v) for v in row] for row in rows]

        check()
