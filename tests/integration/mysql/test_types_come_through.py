"""Every type, out of the log and out of a copy: the same value for the same row, and the right one."""

from __future__ import annotations

import math
import random
import struct
from decimal import Decimal
from typing import Any, NamedTuple

import pytest
from tests.integration.mysql.copied import as_on_the_wire, copied
from tests.integration.mysql.reading import reading, source_of
from tests.support.mysql import MARIADBS, MYSQLS, MysqlDatabase
from tests.unit.mysql.binlog import NoServer

from lowwater.errors import CodecError
from lowwater_extractor.sources.mysql.wire.charsets import Decoders

_DAY_US = 86_400_000_000
_POINT = struct.pack("<IBIdd", 4326, 1, 1, 1.5, -2.5)


def _f32(x: float) -> float:
    found: float = struct.unpack("f", struct.pack("f", x))[0]
    return found


class Case(NamedTuple):
    type: str
    #: what is inserted, as the statement has it → what is published
    values: dict[str, Any]


CASES = {
    "i8": Case("tinyint", {"-128": -128, "127": 127}),
    "u8": Case("tinyint unsigned", {"0": 0, "255": 255}),
    "flag": Case("boolean", {"true": 1, "false": 0}),
    "i16": Case("smallint", {"-32768": -32768, "32767": 32767}),
    "u16": Case("smallint unsigned", {"65535": 65535}),
    "i24": Case("mediumint", {"-8388608": -8388608, "8388607": 8388607}),
    "u24": Case("mediumint unsigned", {"16777215": 16777215}),
    "i32": Case("int", {"-2147483648": -2147483648, "2147483647": 2147483647}),
    "u32": Case("int unsigned", {"4294967295": 4294967295}),
    "z32": Case("int zerofill", {"7": 7}),
    "i64": Case("bigint", {"-9223372036854775808": -(1 << 63), "9223372036854775807": (1 << 63) - 1}),
    "u64": Case("bigint unsigned", {"18446744073709551615": Decimal((1 << 64) - 1), "0": Decimal(0)}),
    "dec": Case("decimal(10,2)", {"-12345678.90": Decimal("-12345678.90"), "0.05": Decimal("0.05")}),
    "big_dec": Case(
        "decimal(65,30)", {f"{'9' * 35}.{'1' * 30}": Decimal(f"{'9' * 35}.{'1' * 30}"), "-1e-30": Decimal("-1e-30")}
    ),
    "whole_dec": Case("decimal(18)", {"-999999999999999999": Decimal(-999999999999999999)}),
    "f32": Case("float", {"0.1": _f32(0.1), "-1.5e30": _f32(-1.5e30)}),
    "f64": Case("double", {"0.1": 0.1, "1.7976931348623157e308": 1.7976931348623157e308, "-5e-300": -5e-300}),
    "f_fixed": Case("float(7,3)", {"1234.567": _f32(1234.567)}),
    "d_fixed": Case("double(12,4)", {"12345678.1234": 12345678.1234}),
    "bit1": Case("bit(1)", {"b'1'": True, "b'0'": False}),
    "bit10": Case("bit(10)", {"b'1000000001'": b"\x02\x01"}),
    "bit64": Case("bit(64)", {"~0": b"\xff" * 8, "1": b"\x00" * 7 + b"\x01"}),
    "day": Case("date", {"'2026-11-16'": 20773, "'1000-01-01'": -354285, "'9999-12-31'": 2932896}),
    "dt0": Case("datetime", {"'2026-11-16 11:40:15'": 20773 * _DAY_US + 42015 * 10**6}),
    "dt3": Case("datetime(3)", {"'2026-11-16 11:40:15.257'": 20773 * _DAY_US + 42015 * 10**6 + 257_000}),
    "dt6": Case("datetime(6)", {"'1000-01-01 00:00:00.000001'": -354285 * _DAY_US + 1}),
    "ts0": Case("timestamp NULL", {"'2023-11-14 22:13:20'": 1_700_000_000 * 10**6}),
    "ts2": Case("timestamp(2) NULL", {"'2023-11-14 22:13:20.25'": 1_700_000_000_250_000}),
    "ts6": Case("timestamp(6) NULL", {"'2023-11-14 22:13:20.000001'": 1_700_000_000_000_001}),
    "t0": Case("time", {"'838:59:59'": 3020399 * 10**6, "'-838:59:59'": -3020399 * 10**6, "'00:00:00'": 0}),
    "t1": Case("time(1)", {"'-00:00:00.5'": -500_000, "'12:00:00.1'": 43_200_100_000}),
    "t4": Case("time(4)", {"'-100:00:00.0001'": -360_000_000_100}),
    "t6": Case("time(6)", {"'25:00:00.999999'": 90_000_999_999, "'-00:00:01.000001'": -1_000_001}),
    "y": Case("year", {"2026": 2026, "1901": 1901, "2155": 2155, "0": 0}),
    "c": Case("char(5)", {"'ab '": b"ab", "''": b"", "'éé'": "éé"}),
    "c_long": Case("char(200) CHARACTER SET utf8mb4", {"'x'": "x", "repeat('𝄞', 200)": "𝄞" * 200}),
    "v": Case("varchar(20)", {"'naïve 𝄞'": "naïve 𝄞", "''": ""}),
    "v_long": Case("varchar(2000)", {"repeat('ä', 2000)": "ä" * 2000}),
    "latin": Case("varchar(20) CHARACTER SET latin1", {"'café €'": "café €"}),
    "cyr": Case("varchar(20) CHARACTER SET cp1251", {"'привет'": "привет"}),
    "koi": Case("varchar(20) CHARACTER SET koi8r", {"'привет'": "привет"}),
    "jp": Case("varchar(20) CHARACTER SET sjis", {"'日本語'": "日本語"}),
    "ujis": Case("varchar(20) CHARACTER SET ujis", {"'日本語'": "日本語"}),
    "gbk": Case("varchar(20) CHARACTER SET gbk", {"'汉字'": "汉字"}),
    "big5": Case("varchar(20) CHARACTER SET big5", {"'漢字'": "漢字"}),
    "kr": Case("varchar(20) CHARACTER SET euckr", {"'한국어'": "한국어"}),
    "utf16": Case("varchar(20) CHARACTER SET utf16", {"'a𝄞ä'": "a𝄞ä"}),
    "ucs": Case("varchar(20) CHARACTER SET ucs2", {"'aä€'": "aä€"}),
    "u32t": Case("text CHARACTER SET utf32", {"'a𝄞'": "a𝄞"}),
    "tt": Case("tinytext", {"'t'": "t"}),
    "mt": Case("mediumtext", {"repeat('ü', 40000)": "ü" * 40000}),
    "lt": Case("longtext", {"'l'": "l"}),
    "b": Case("binary(4)", {"x'0102'": b"\x01\x02\x00\x00", "x'00000000'": bytes(4), "x'20202020'": b"    "}),
    "vb": Case("varbinary(300)", {"x'0001ff00'": b"\x00\x01\xff\x00"}),
    "blob_": Case("blob", {"x'ff00'": b"\xff\x00", "''": b""}),
    "lb": Case("longblob", {"repeat(x'ff', 70000)": b"\xff" * 70000}),
    "e": Case("enum('a','b''c','ü')", {"'b''c'": "b'c", "'ü'": "ü", "1": "a"}),
    "s": Case("set('a','b','ü')", {"'a,ü'": ["a", "ü"], "''": []}),
    "s9": Case("set('1','2','3','4','5','6','7','8','9')", {"'1,9'": ["1", "9"]}),
    "g": Case("geometry", {"ST_GeomFromText('POINT(1.5 -2.5)', 0)": b"\x00" * 4 + _POINT[4:]}),
    # MariaDB counts a geometry among the texts whose character sets it lists
    "behind_g": Case("varchar(20) CHARACTER SET utf16", {"'a𝄞ä'": "a𝄞ä"}),
    "latin_behind_g": Case("varchar(20) CHARACTER SET latin1", {"'café €'": "café €"}),
    "gen_stored": Case("int AS (1 + 1) STORED", {"DEFAULT": 2}),
    "gen_virtual": Case("int AS (2 + 1) VIRTUAL", {"DEFAULT": 3}),
}

DOCUMENTS = [
    "{}", "[]", "null", "true", "1", "-1", "1.5", "1e20", "1e-7", "123456789012345680.0",
    '"é\\"\\\\/\\b\\f\\n\\r\\t\\u0001𝄞"',
    '{"b": [1, 2, {"c": null}], "aa": {"x": "y"}, "a": false}', "18446744073709551615", "-9223372036854775808",
    "[32767, 32768, -32769, 2147483648, 0.1, -0.5, 1e300, 1e15, 1e14, 100.0, 1.0]", '"' + "x" * 70_000 + '"',
    "[" + ", ".join(["70000"] * 12_000) + "]",
]  # fmt: skip


def _same(found: Any, expected: Any) -> bool:
    if isinstance(expected, str) and isinstance(found, bytes):
        return found.decode() == expected
    if isinstance(expected, bytes) and isinstance(found, str):
        return found.encode() == expected
    return bool(found == expected)


def test_every_type_has_the_same_value_in_the_log_and_in_a_copy(mysql_database: MysqlDatabase) -> None:
    columns = ", ".join(f"`{name}` {case.type}" for name, case in CASES.items())
    mysql_database.execute(f"CREATE TABLE every (id int PRIMARY KEY, {columns}) ROW_FORMAT=DYNAMIC")
    rounds = max(len(case.values) for case in CASES.values())
    with reading(mysql_database) as read:
        expected = []
        for number in range(rounds):
            row = {
                name: list(case.values.items())[number % len(case.values)] for name, case in CASES.items()
            }  # fmt: skip
            texts = ", ".join(text for text, _ in row.values())
            mysql_database.execute(f"INSERT INTO every VALUES ({number}, {texts})")
            expected.append({"id": number, **{name: value for name, (_, value) in row.items()}})
        generated = {"gen_stored", "gen_virtual"}
        names = ", ".join(f"`{name}`" for name in CASES if name not in generated)
        mysql_database.execute(
            f"INSERT INTO every (id, {names}) SELECT 99, {', '.join('NULL' for _ in range(len(CASES) - 2))}"
        )
        streamed = [change.after for changes in read.new() for change in changes]
        expected.append({"id": 99, **dict.fromkeys(CASES), "gen_stored": 2, "gen_virtual": 3})
        assert len(streamed) == len(expected)
        for found, wanted in zip(streamed, expected, strict=True):
            assert found is not None
            wrong = {n: (found[n], wanted[n]) for n in wanted if not _same(found[n], wanted[n])}
            assert not wrong
        source = source_of(mysql_database)
        (schema,) = [t for t in source.discover() if t.table == "every"]
        assert schema.columns == read.encoders.versions("every")[0].columns
        rows = as_on_the_wire(copied(source, f"{mysql_database.name}.every"))
        by_id = {row["id"]: row for row in rows}
        for found in streamed:
            assert found is not None
            wrong = {n: (found[n], by_id[found["id"]][n]) for n in found if found[n] != by_id[found["id"]][n]}
            assert not wrong


def test_numbers_after_a_year_column_keep_their_sign(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(
        "CREATE TABLE years (pk INT PRIMARY KEY, y YEAR, n INT, u INT UNSIGNED, s SMALLINT)",
        "CREATE TABLE led (y YEAR PRIMARY KEY, n INT UNSIGNED)",
        "CREATE TABLE many (y YEAR PRIMARY KEY, a INT UNSIGNED, b INT, c INT, d INT, e INT, f INT, g INT, "
        "h INT UNSIGNED)",
    )
    with reading(mysql_database) as read:
        mysql_database.execute(
            "INSERT INTO years VALUES (123, 2041, -8489734, 3000000000, -5)",
            "INSERT INTO led VALUES (2026, 4000000000)",
            "INSERT INTO many VALUES (1999, 4000000000, -1, -2, -3, -4, -5, -6, 3000000000)",
        )
        rows = [list(change.after.values()) for changes in read.new() for change in changes if change.after]
        assert rows == [
            [123, 2041, -8489734, 3_000_000_000, -5],
            [2026, 4_000_000_000],
            [1999, 4_000_000_000, -1, -2, -3, -4, -5, -6, 3_000_000_000],
        ]
        known = {table.table: table for table in source_of(mysql_database).discover()}
        for name in ("years", "led", "many"):
            assert read.encoders.versions(name)[0].columns == known[name].columns


@pytest.mark.parametrize("mysql_server", MARIADBS, indirect=True)
@pytest.mark.parametrize("more", ["", ", e enum('x')"])
def test_half_letters_that_mariadb_takes_for_text_stop_the_source(mysql_database: MysqlDatabase, more: str) -> None:
    """In the compiled way and in the plain one, and in a copy."""
    name = f"{mysql_database.name}.halves"
    mysql_database.execute(f"CREATE TABLE halves (id int PRIMARY KEY, t varchar(10) CHARACTER SET utf8mb4{more})")
    with reading(mysql_database) as read:
        mysql_database.execute(
            "INSERT INTO halves (id, t) VALUES (1, 'é€😀')", "INSERT INTO halves (id, t) VALUES (2, x'EDA080')"
        )
        with pytest.raises(CodecError, match=rf"{name}\.t: bytes that are not valid UTF-8"):
            read.new()
    with pytest.raises(CodecError, match=r"\.t \(string\)"):
        copied(source_of(mysql_database), name)


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_doubles_in_json_read_as_the_server_writes_them(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE docs (id int PRIMARY KEY, doc json)")
    rng = random.Random(7)
    doubles = [10.0**n for n in range(-330, 309)] + [1.5 * 10.0**n for n in range(-25, 25)]
    doubles += [float(10**n - 1) for n in range(1, 25)] + [float(10**n + 1) for n in range(1, 25)]
    doubles += [
        0.1 + 0.2,
        1 / 3,
        2 / 3,
        5e-324,
        2.2250738585072014e-308,
        1.7976931348623157e308,
        -0.0,
        2.0**53,
        2.0**63,
    ]
    doubles += [struct.unpack("<d", rng.randbytes(8))[0] for _ in range(1500)]
    doubles += [rng.uniform(-1, 1) * 10.0 ** rng.randrange(-20, 25) for _ in range(1500)]
    doubles = [x for x in doubles if math.isfinite(x)]
    doubles += [-x for x in doubles]
    with reading(mysql_database) as read, mysql_database.connect() as connection, connection.cursor() as cursor:
        for start in range(0, len(doubles), 500):
            part = enumerate(doubles[start : start + 500], start)
            texts = ", ".join(f"({n}, JSON_ARRAY({x!r}{'' if 'e' in repr(x) else 'e0'}))" for n, x in part)
            cursor.execute(f"INSERT INTO docs VALUES {texts}")
        streamed = {c.after["id"]: c.after["doc"] for changes in read.new() for c in changes if c.after}
        cursor.execute("SELECT id, CAST(doc AS CHAR) FROM docs")
        server = dict(cursor.fetchall())
    wrong = {n: (streamed[n], server[n]) for n in server if streamed[n] != server[n]}
    assert len(streamed) == len(server) == len(doubles)
    assert not wrong


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_json_reads_as_the_server_writes_it(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE docs (id int PRIMARY KEY, doc json)")
    with reading(mysql_database) as read, mysql_database.connect() as connection, connection.cursor() as cursor:
        for number, document in enumerate(DOCUMENTS):
            cursor.execute("INSERT INTO docs VALUES (%s, %s)", (number, document))
        special = {
            1000: "CAST(CAST('2026-11-16' AS DATE) AS JSON)",
            1001: "CAST(CAST('2026-11-16 11:40:15.25' AS DATETIME(6)) AS JSON)",
            1002: "CAST(CAST('-100:00:01.5' AS TIME(6)) AS JSON)",
            1003: "CAST(CAST('123.4500' AS DECIMAL(10,4)) AS JSON)",
            1004: "JSON_OBJECT('blob', CAST(x'00ff' AS BINARY))",
            1005: "JSON_ARRAY(0.1e0, 1e22, 12345678901234567e0, 1.7976931348623157e308, 5e-324, -0e0, 123456.789e3)",
            1006: "JSON_OBJECT('ключ', 'значение', '', 1)",
        }
        for number, expression in special.items():
            cursor.execute(f"INSERT INTO docs VALUES ({number}, {expression})")
        streamed = {c.after["id"]: c.after["doc"] for changes in read.new() for c in changes if c.after}
        cursor.execute("SELECT id, CAST(doc AS CHAR) FROM docs")
        server = dict(cursor.fetchall())
        rows = copied(source_of(mysql_database), f"{mysql_database.name}.docs").to_pylist()
    assert streamed == server
    assert {row["id"]: row["doc"] for row in rows} == server


def test_dates_that_are_no_days_stop_the_source_or_become_null_or_text(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE zeros (id int PRIMARY KEY, d date, dt datetime(3), ts timestamp(2) NULL)")
    name = mysql_database.name
    insert = (
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
        "INSERT INTO zeros VALUES (1, '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00')",
        "INSERT INTO zeros VALUES (2, '2026-02-31', '2026-00-10 01:02:03.004', '2023-11-14 22:13:20.25')",
    )
    text = [f"{name}.zeros.{column}" for column in ("d", "dt", "ts")]
    with (
        reading(mysql_database, server_id=11) as stops,
        reading(mysql_database, server_id=12, zero_dates="null") as nulls,
        reading(mysql_database, server_id=13, as_text=text) as texts,
    ):
        mysql_database.execute(*insert)
        with pytest.raises(CodecError, match=rf"{name}\.zeros\.d: an invalid date") as refused:
            stops.new()
        assert "as_text" in str(refused.value.hint)
        rows = [change.after for changes in nulls.new() for change in changes]
        assert rows == [
            {"id": 1, "d": None, "dt": None, "ts": None},
            {"id": 2, "d": None, "dt": None, "ts": 1_700_000_000_250_000},
        ]
        as_null = copied(source_of(mysql_database, zero_dates="null"), f"{name}.zeros")
        assert as_on_the_wire(as_null) == rows
        rows = [change.after for changes in texts.new() for change in changes]
        assert rows == [
            {"id": 1, "d": "0000-00-00", "dt": "0000-00-00 00:00:00.000", "ts": "0000-00-00 00:00:00.00"},
            {"id": 2, "d": "2026-02-31", "dt": "2026-00-10 01:02:03.004", "ts": "2023-11-14 22:13:20.25"},
        ]
        assert copied(source_of(mysql_database, as_text=text), f"{name}.zeros").to_pylist() == rows
        with pytest.raises(CodecError, match="an invalid date"):
            copied(source_of(mysql_database), f"{name}.zeros")


@pytest.mark.long
def test_letters_of_several_bytes_are_those_that_the_server_means(mysql_database: MysqlDatabase) -> None:
    """All that it can write in each of these sets; one that is not known here is an error, never another one."""
    mysql_database.execute("CREATE TABLE letters (c varchar(2) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin)")
    letters = [chr(n) for n in (*range(1, 0xD800), *range(0xE000, 0x10000), *range(0x20000, 0x20100))]
    with mysql_database.connect() as connection, connection.cursor() as cursor:
        cursor.executemany("INSERT INTO letters VALUES (%s)", [(letter,) for letter in letters])
        sets = [
            "ucs2",
            "utf16",
            "utf16le",
            "utf32",
            "sjis",
            "cp932",
            "ujis",
            "eucjpms",
            "euckr",
            "gb2312",
            "gbk",
            "big5",
        ]
        for charset in [*sets, *([] if mysql_database.is_mariadb else ["gb18030"])]:
            written = f"CONVERT(c USING {charset})"
            cursor.execute(f"SELECT CONVERT({written} USING binary), CONVERT({written} USING utf8mb4) FROM letters")
            rows = [(data, text) for data, text in cursor.fetchall() if text not in ("?", "\ufffd")]
            decode = Decoders(NoServer()).decoder(charset)
            assert decode is not None
            unknown = 0
            for data, text in rows:
                try:
                    assert decode(data) == text, charset
                except CodecError:
                    unknown += 1
            assert unknown < len(rows) / 5, charset
