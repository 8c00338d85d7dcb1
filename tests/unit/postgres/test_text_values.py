"""PostgreSQL's text to values: against `datetime` where that reaches, by hand where it does not."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec import table as t
from lowwater.errors import CodecError
from lowwater_extractor.sources.postgres.types import PgType, column_type
from lowwater_extractor.sources.postgres.wire import text_values as tv

DAY_US = 86_400_000_000
EPOCH = dt.datetime(1970, 1, 1)
MICROSECOND = dt.timedelta(microseconds=1)


def clock(value: dt.time | dt.datetime) -> str:
    """As PostgreSQL writes it: no zeros at the end of a fraction."""
    return f"{value:%H:%M:%S}" + (f".{value.microsecond:06d}".rstrip("0") if value.microsecond else "")


# -- dates and times -------------------------------------------------------------------------------------


@given(st.dates())
def test_a_date_is_its_days_since_1970(value: dt.date) -> None:
    assert tv.days(value.isoformat().encode()) == (value - dt.date(1970, 1, 1)).days


@given(st.datetimes())
def test_a_timestamp_is_its_microseconds_since_1970(value: dt.datetime) -> None:
    text = f"{value.date().isoformat()} {clock(value)}"
    wanted = (value - EPOCH) // MICROSECOND
    assert tv.timestamp(text.encode()) == wanted
    assert tv.instant(f"{text}+00".encode()) == wanted


@given(st.times())
def test_a_time_is_its_microseconds_since_midnight(value: dt.time) -> None:
    wanted = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    assert tv.time(clock(value).encode()) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("infinity", (1 << 31) - 1),
        ("-infinity", -((1 << 31) - 1)),
        ("0001-12-31 BC", -719_163),  # the day before 0001-01-01
        ("0001-01-01", -719_162),
        ("0001-02-29 BC", -719_469),  # 1 BC is a leap year
        ("0044-03-15 BC", -735_160),
        ("4713-01-01 BC", -2_440_550),  # the first day that PostgreSQL has a name for, nearly
        ("10000-01-01", 2_932_897),
        ("5874897-12-31", 2_145_042_905),  # the last one
    ],
)
def test_dates_that_python_does_not_know(text: str, wanted: int) -> None:
    assert tv.days(text.encode()) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("infinity", (1 << 63) - 1),
        ("-infinity", -((1 << 63) - 1)),
        ("0001-12-31 23:59:59.999999 BC", -719_162 * DAY_US - 1),
        ("0044-03-15 12:00:00 BC", -735_160 * DAY_US + DAY_US // 2),
        ("4713-01-01 00:00:00 BC", -2_440_550 * DAY_US),
        ("10000-01-01 00:00:00.5", 2_932_897 * DAY_US + 500_000),
        ("294276-12-31 23:59:59.999999", 9_224_318_015_999_999_999),
    ],
)
def test_timestamps_that_python_does_not_know(text: str, wanted: int) -> None:
    assert tv.timestamp(text.encode()) == wanted
    is_bc = text.endswith(" BC")
    zoned = text if "infinity" in text else f"{text.removesuffix(' BC')}+00{' BC' if is_bc else ''}"
    assert tv.instant(zoned.encode()) == wanted


@pytest.mark.parametrize(
    "text", ["", "2026-01-01", "2026-01-01 00:00:00+01", "2026-01-01 00:00:00+05:30", "16.11.2026"]
)
def test_an_instant_that_is_not_in_utc_is_not_taken_for_one(text: str) -> None:
    with pytest.raises((ValueError, CodecError)):
        tv.instant(text.encode())


# -- numbers, bytes --------------------------------------------------------------------------------------


@given(st.decimals(min_value=-(10**17), max_value=10**17, places=2))
def test_money_has_its_sign_its_groups_and_its_cents(value: Decimal) -> None:
    text = f"{'-' if value < 0 else ''}${abs(value):,.2f}"
    assert tv.money(text.encode()) == value


@given(st.binary())
def test_bytea_is_its_bytes(value: bytes) -> None:
    assert tv.binary(b"\\x" + value.hex().encode()) == value
    assert tv.bare_hex(value.hex().upper().encode()) == value


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_a_numeric_keeps_its_digits(value: Decimal) -> None:
    found = tv.numeric(f"{value:f}".encode())
    assert (found, -int(found.as_tuple().exponent)) == (value, max(0, -int(value.as_tuple().exponent)))


def test_booleans() -> None:
    assert (tv.boolean(b"t"), tv.boolean(b"f")) == (True, False)


# -- arrays ----------------------------------------------------------------------------------------------


def written(value: Any) -> str:
    """An array's text, with quotes wherever they are allowed."""
    if isinstance(value, list):
        return "{" + ",".join(map(written, value)) + "}"
    if value is None:
        return "NULL"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'


@given(st.lists(st.none() | st.text(alphabet=st.characters(exclude_characters="\0", codec="utf-8"))))
def test_an_array_of_texts_is_their_list(value: list[str | None]) -> None:
    found = tv.array(1, bytes)(written(value).encode())
    assert found == [None if item is None else item.encode() for item in value]


@given(
    st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(st.text('ab{}," \\é'), min_size=n, max_size=n), min_size=1))
)
def test_an_array_of_two_dimensions_is_a_list_of_lists(value: list[list[str]]) -> None:
    found = tv.array(2, lambda v: v.decode())(written(value).encode())
    assert found == value


@pytest.mark.parametrize(
    ("depth", "text", "wanted"),
    [
        (1, "{}", []),
        (2, "{}", []),
        (1, '{""}', [""]),
        (1, "{a,NULL,null}", ["a", None, None]),
        (1, '{"NULL","null",nullx}', ["NULL", "null", "nullx"]),
        (1, r'{"a\"b","c\\d","e,f","{g}"," h "}', ['a"b', "c\\d", "e,f", "{g}", " h "]),
        (1, "[0:1]={a,b}", ["a", "b"]),
        (2, "[-1:0][5:6]={{a,b},{c,NULL}}", [["a", "b"], ["c", None]]),
        (3, "{{{a},{b}},{{c},{d}}}", [[["a"], ["b"]], [["c"], ["d"]]]),
        (1, '{"[0:1]={x}"}', ["[0:1]={x}"]),
    ],
)
def test_arrays_as_the_server_writes_them(depth: int, text: str, wanted: list[Any]) -> None:
    assert tv.array(depth, lambda v: v.decode())(text.encode()) == wanted


def test_an_array_can_have_another_delimiter() -> None:
    assert tv.array(1, bytes, b";")(b"{(1,1),(0,0);(2,2),(1,1)}") == [b"(1,1),(0,0)", b"(2,2),(1,1)"]


@pytest.mark.parametrize(
    ("depth", "text", "what"),
    [
        (1, "{{a}}", "more dimensions"),
        (2, "{a}", "fewer dimensions"),
        (2, "{NULL}", "fewer dimensions"),
        (1, "{a}b", "trailing text"),
        (1, "a", ""),
        (1, "", ""),
        (1, "{a", ""),
        (1, '{"a', ""),
    ],
)
def test_an_array_that_is_none_is_an_error(depth: int, text: str, what: str) -> None:
    with pytest.raises((CodecError, IndexError, ValueError)) as caught:
        tv.array(depth, bytes)(text.encode())
    assert what in str(caught.value)


# -- types -----------------------------------------------------------------------------------------------


def modifier(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@pytest.mark.parametrize(
    ("typmod", "wanted"),
    [
        (-1, t.STRING),
        (modifier(10, 2), t.decimal(10, 2)),
        (modifier(5, 0), t.decimal(5, 0)),
        (modifier(3, -2), t.decimal(5, 0)),
        (modifier(2, 4), t.decimal(4, 4)),
        (modifier(76, 10), t.decimal(76, 10)),
        (modifier(77, 0), t.STRING),
        (modifier(1000, -1000), t.STRING),
    ],
)
def test_a_numeric_is_a_decimal_where_its_digits_are_declared(typmod: int, wanted: t.Type) -> None:
    assert column_type(PgType(1700, "numeric"), typmod).type == wanted


def test_a_domain_brings_its_modifier_and_its_dimensions() -> None:
    numeric = PgType(1700, "numeric", typmod=modifier(8, 3))
    assert column_type(numeric, -1).type == t.decimal(8, 3)
    matrix = PgType(1007, "_int4", PgType(23, "int4"), dimensions=2)
    assert column_type(matrix, -1).type == t.array(t.array(t.INT32))


def test_what_is_not_known_is_text() -> None:
    found = column_type(PgType(99_999, "mood"), -1)
    assert (found.type, found.convert, found.is_text) == (t.STRING, bytes, True)
    assert column_type(PgType(23, "int4"), -1, as_text=True).type == t.STRING
