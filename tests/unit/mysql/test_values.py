"""Values of the log, against another way to write them down."""

from __future__ import annotations

import datetime as dt
import json
import struct
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.mysql.binlog import NoServer

from lowwater.errors import CodecError
from lowwater_extractor.sources.mysql.snapshot import text_values as tv
from lowwater_extractor.sources.mysql.wire import binary_values as bv
from lowwater_extractor.sources.mysql.wire import json_values as jv
from lowwater_extractor.sources.mysql.wire.charsets import Decoders

_DIGITS = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_DAY_US = 86_400_000_000
_EPOCH = dt.datetime(1970, 1, 1)


def _decimal_bytes(unscaled: int, precision: int, scale: int) -> bytes:
    """As a server packs it: nine digits in four bytes, the sign in the first bit, negative ones inverted."""
    digits = str(abs(unscaled)).zfill(precision)
    whole, fraction = digits[: precision - scale], digits[precision - scale :]
    head = len(whole) % 9
    groups = [whole[:head]] if head else []
    groups += [whole[at : at + 9] for at in range(head, len(whole), 9)]
    groups += [fraction[at : at + 9] for at in range(0, len(fraction), 9)]
    data = b"".join(int(group).to_bytes(_DIGITS[len(group)], "big") for group in groups)
    data = bytes([data[0] | 0x80]) + data[1:]
    return bytes(byte ^ 0xFF for byte in data) if unscaled < 0 else data


@given(st.data(), st.integers(1, 65))
def test_decimals_of_every_size(data: st.DataObject, precision: int) -> None:
    scale = data.draw(st.integers(0, min(30, precision)))
    unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    value = Decimal(f"{unscaled}E-{scale}")
    packed = _decimal_bytes(unscaled, precision, scale)
    assert len(packed) == bv.decimal_size(precision, scale)
    assert bv.decimal(precision, scale)(packed) == value


def _datetime_bytes(value: dt.datetime, digits: int) -> bytes:
    days = (value.year * 13 + value.month) << 5 | value.day
    whole = days << 17 | value.hour << 12 | value.minute << 6 | value.second
    return (whole + (0x80 << 32)).to_bytes(5, "big") + _fraction(value.microsecond, digits)


def _fraction(micros: int, digits: int) -> bytes:
    size = (digits + 1) // 2
    return (micros // (1, 10_000, 100, 1)[size]).to_bytes(size, "big") if size else b""


def _cut(value: dt.datetime, digits: int) -> dt.datetime:
    unit = 10 ** (6 - digits)
    return value.replace(microsecond=value.microsecond // unit * unit)


@given(st.datetimes(min_value=dt.datetime(1, 1, 1)), st.integers(0, 6))
def test_datetimes_and_their_text(value: dt.datetime, digits: int) -> None:
    value = _cut(value, digits)
    packed = _datetime_bytes(value, digits)
    micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
    assert bv.datetime(digits)(packed) == micros
    text = bv.datetime_text(digits)(packed)
    assert tv.timestamp(text.encode()) == micros


@given(st.datetimes(min_value=dt.datetime(1970, 1, 1, 0, 0, 1), max_value=dt.datetime(2106, 1, 1)), st.integers(0, 6))
def test_timestamps_and_their_text(value: dt.datetime, digits: int) -> None:
    value = _cut(value, digits)
    micros = (value - _EPOCH) // dt.timedelta(microseconds=1)
    packed = (micros // 1_000_000).to_bytes(4, "big") + _fraction(value.microsecond, digits)
    assert bv.timestamp(digits)(packed) == micros
    assert tv.timestamp(bv.timestamp_text(digits)(packed).encode()) == micros


@given(st.integers(-3_020_399_999_999, 3_020_399_999_999), st.integers(0, 6))
def test_times_beyond_a_day_and_below_zero(micros: int, digits: int) -> None:
    unit = 10 ** (6 - digits)
    micros = micros // unit * unit if micros >= 0 else -(-micros // unit * unit)
    seconds, rest = divmod(abs(micros), 1_000_000)
    size = (digits + 1) // 2
    whole = seconds // 3600 << 12 | seconds // 60 % 60 << 6 | seconds % 60
    signed = whole << 8 * size | rest // (1, 10_000, 100, 1)[size]
    packed = ((0x80_0000 << 8 * size) + (-signed if micros < 0 else signed)).to_bytes(3 + size, "big")
    assert bv.time(digits)(packed) == micros
    text = bv.time_text(digits)(packed)
    assert tv.time(text.encode()) == micros


@given(st.dates())
def test_dates_and_their_text(day: dt.date) -> None:
    packed = (day.year << 9 | day.month << 5 | day.day).to_bytes(3, "little")
    days = day.toordinal() - dt.date(1970, 1, 1).toordinal()
    assert bv.date(packed) == days
    assert bv.date_of(days) == (day.year, day.month, day.day)
    assert tv.days(bv.date_text(packed).encode()) == days


@pytest.mark.parametrize("day", [(0, 0, 0), (2026, 0, 10), (2026, 10, 0), (2026, 2, 29), (2026, 4, 31)])
def test_days_that_are_none_are_refused_or_null(day: tuple[int, int, int]) -> None:
    packed = (day[0] << 9 | day[1] << 5 | day[2]).to_bytes(3, "little")
    with pytest.raises(CodecError, match="an invalid date"):
        bv.date(packed)
    assert bv.null_if_zero(bv.date)(packed) is None
    assert bv.date_text(packed) == f"{day[0]:04}-{day[1]:02}-{day[2]:02}"
    with pytest.raises(CodecError, match="an invalid date"):
        tv.days(bv.date_text(packed).encode())


def test_the_zero_timestamp_is_no_instant() -> None:
    with pytest.raises(CodecError, match="an invalid date"):
        bv.timestamp(0)(bytes(4))
    assert bv.timestamp_text(2)(bytes(5)) == "0000-00-00 00:00:00.00"


def test_the_forms_of_old_tables() -> None:
    assert bv.old_datetime((20261116114015).to_bytes(8, "little")) == 20_773 * _DAY_US + 42_015 * 1_000_000
    assert bv.old_time((-8385959).to_bytes(3, "little", signed=True)) == -3_020_399_000_000
    assert bv.old_timestamp(struct.pack("<I", 1_700_000_000)) == 1_700_000_000_000_000


# -- JSON --------------------------------------------------------------------------------------------------


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_in_json_are_the_shortest_that_give_the_number_back(x: float) -> None:
    text = jv.double_text(x)
    assert float(text) == x
    assert isinstance(json.loads(text), float)


@given(st.text())
def test_texts_in_json_read_as_they_were(text: str) -> None:
    assert json.loads(jv.quoted(text)) == text


def _packed(value: object, *, large: bool = False) -> tuple[int, bytes]:
    """A document in the server's form: its type, and its bytes."""
    if isinstance(value, dict):
        return (1 if large else 0), _container([*value.items()], large)
    if isinstance(value, list):
        return (3 if large else 2), _container([("", item) for item in value], large, is_array=True)
    if value is None or isinstance(value, bool):
        return 4, bytes([{None: 0, True: 1, False: 2}[value]])
    if isinstance(value, int):
        return 9, struct.pack("<q", value)
    if isinstance(value, float):
        return 11, struct.pack("<d", value)
    data = str(value).encode()
    size, prefix = len(data), b""
    while size > 127:
        prefix += bytes([size & 127 | 128])
        size >>= 7
    return 12, prefix + bytes([size]) + data


def _container(members: list[tuple[str, object]], large: bool, *, is_array: bool = False) -> bytes:
    width, number = (4, "<I") if large else (2, "<H")
    at = 2 * width + len(members) * ((0 if is_array else width + 2) + 1 + width)
    keys, entries, tail = b"", b"", b""
    for key, _ in [] if is_array else members:
        keys += struct.pack(number, at + len(tail)) + struct.pack("<H", len(key.encode()))
        tail += key.encode()
    for _, value in members:
        kind, data = _packed(value, large=large)
        if kind == 4:
            entries += bytes([kind]) + data.ljust(width, b"\x00")
        else:
            entries += bytes([kind]) + struct.pack(number, at + len(tail))
            tail += data
    body = keys + entries + tail
    return struct.pack(number, len(members)) + struct.pack(number, 2 * width + len(body)) + body


_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text(max_size=200)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=9), inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


@given(_DOCUMENTS, st.booleans())
def test_binary_json_reads_as_the_document_that_it_is(document: object, large: bool) -> None:
    kind, data = _packed(document, large=large)
    assert json.loads(jv.json_text(bytes([kind]) + data)) == document


@pytest.mark.parametrize(
    "data", [b"\x00", b"\x63", b"\x0c\x05ab", b"\x04\x09", b"\x00\x01\x00\x20\x00\x09\x00\x01\x00"]
)
def test_binary_json_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        jv.json_text(data)


# -- text --------------------------------------------------------------------------------------------------


def test_text_of_any_character_set_becomes_the_text_that_it_is() -> None:
    decoders = Decoders(NoServer())
    assert decoders.decoder("utf8mb4") is None
    assert decoders.text("latin1", "café €".encode("cp1252")) == "café €"
    assert decoders.text("cp1250", "żółw".encode("cp1250")) == "żółw"
    assert decoders.text("sjis", "日本語".encode("cp932")) == "日本語"
    assert decoders.text("ucs2", "aä€".encode("utf-16-be")) == "aä€"
    with pytest.raises(CodecError, match="not valid sjis"):
        decoders.text("sjis", b"\xff\xff")


def test_labels_and_padding() -> None:
    assert bv.label_of_enum(["a", "b"])(0) == ""
    assert bv.label_of_enum(["a", "b"])(2) == "b"
    assert bv.labels_of_set(["a", "b", "c"])(b"\x05") == ["a", "c"]
    assert bv.padded(4)(b"\x01") == b"\x01\x00\x00\x00"
