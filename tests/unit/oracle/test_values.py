"""Column bytes: the examples of the format document, and every value there and back."""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater.codec import values as written
from lowwater.codec.table import ColumnKind
from lowwater.errors import CodecError, LogUnknownError, StartRefusedError
from lowwater_extractor.sources.oracle.rows import lobs
from lowwater_extractor.sources.oracle.rows.number_values import (
    number_to_decimal,
    number_to_text,
    number_to_whole,
    parts_of_number,
)
from lowwater_extractor.sources.oracle.rows.value_writing import encode_number, encoder
from lowwater_extractor.sources.oracle.rows.values import MISSING, decoder, rowid_text
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType, published_type


def column(type_: int, **more: Any) -> OracleColumn:
    if type_ in (OracleType.VARCHAR2, OracleType.CHAR, OracleType.LONG, OracleType.CLOB):
        more.setdefault("charset", "AL32UTF8")
    return OracleColumn("C", 1, type_, **more)


def decoded(raw: str, type_: int, **more: Any) -> Any:
    decode = decoder(column(type_, **more))
    assert decode is not None
    return decode(bytes.fromhex(raw))


def there_and_back(value: Any, type_: int, **more: Any) -> Any:
    """Also through the encoder of the published type: what the decoder gives must be what that takes."""
    described = column(type_, **more)
    raw = encoder(described)(value)
    decode = decoder(described)
    assert raw is not None
    assert decode is not None
    found = decode(raw)
    written.writer(published_type(described))(found)
    return found


def micros(*parts: int) -> int:
    return (dt.datetime(*parts) - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # type: ignore[arg-type]


NUMBERS = [
    ("c102", "1"), ("c20338", "255"), ("c3081c1b", "72726"), ("80", "0"), ("3e6466", "-1"), ("c033", "0.5"),
    ("3d644e3866", "-123.45"), ("ff65", "Infinity"), ("00", "-Infinity"),
]  # fmt: skip


class TestTheDocumentsExamples:
    @pytest.mark.parametrize(("raw", "text"), NUMBERS)
    def test_number(self, raw: str, text: str) -> None:
        assert decoded(raw, OracleType.NUMBER) == text
        assert number_to_decimal(bytes.fromhex(raw)) == Decimal(text)
        assert encode_number(Decimal(text)).hex() == raw

    @pytest.mark.parametrize(
        ("raw", "second"), [("787e0307022d27", 38), ("787e0307022d28", 39), ("787e0307022d29", 40)]
    )
    def test_date(self, raw: str, second: int) -> None:
        assert decoded(raw, OracleType.DATE) == micros(2026, 3, 7, 1, 44, second)

    def test_timestamp(self) -> None:
        raw = "787e0307022d29075bcd15"
        assert decoded(raw, OracleType.TIMESTAMP, scale=6) == micros(2026, 3, 7, 1, 44, 40, 123456)
        assert decoded(raw, OracleType.TIMESTAMP, scale=9) == "2026-03-07T01:44:40.123456789"
        assert decoded("787e0307022d29", OracleType.TIMESTAMP, scale=6) == micros(2026, 3, 7, 1, 44, 40)

    @pytest.mark.parametrize("zone", ["153c", "0f1e", "143c", "8a14"])
    def test_timestamp_with_time_zone_is_stored_in_utc(self, zone: str) -> None:
        at = micros(2026, 3, 7, 1, 44, 40)
        assert decoded("787e0307022d29075bcd15" + zone, OracleType.TIMESTAMP_TZ, scale=6) == at + 123456
        assert decoded("787e0307022d29" + zone, OracleType.TIMESTAMP_TZ, scale=6) == at

    @pytest.mark.parametrize(
        ("hours", "minutes", "raw"), [(1, 0, "153c"), (-5, -30, "0f1e"), (0, 0, "143c"), (0, -30, "141e")]
    )
    def test_offsets_of_time_zones(self, hours: int, minutes: int, raw: str) -> None:
        zone = dt.timezone(dt.timedelta(hours=hours, minutes=minutes))
        found = encoder(column(OracleType.TIMESTAMP_TZ, scale=6))(dt.datetime(2026, 3, 7, 1, 44, 40, tzinfo=zone))
        assert found is not None
        assert found[11:].hex() == raw

    @pytest.mark.parametrize(
        ("raw", "type_", "value"),
        [
            ("bfc00000", OracleType.BINARY_FLOAT, 1.5),
            ("403fffff", OracleType.BINARY_FLOAT, -1.5),
            ("80000000", OracleType.BINARY_FLOAT, 0.0),
            ("bff8000000000000", OracleType.BINARY_DOUBLE, 1.5),
            ("4007ffffffffffff", OracleType.BINARY_DOUBLE, -1.5),
            ("8000000340", OracleType.INTERVAL_YM, "P3Y4M"),
            ("7ffffffd38", OracleType.INTERVAL_YM, "P-3Y-4M"),
            ("800000003c", OracleType.INTERVAL_YM, "PT0S"),
            ("800000013e3f409dcd6500", OracleType.INTERVAL_DS, "P1DT2H3M4.5S"),
            ("800000003c3c3c80000000", OracleType.INTERVAL_DS, "PT0S"),
            ("00011c160600000e0000", OracleType.ROWID, "AAARwWAAYAAAAAOAAA"),
            ("0100011c160000001800" + "00000e", OracleType.UROWID, "AAARwWAAYAAAAAOAAA"),
            ("01", OracleType.BOOLEAN, True),
            ("00", OracleType.BOOLEAN, False),
            ("68656c6c6f20776f726c64", OracleType.VARCHAR2, b"hello world"),
            ("0102ff", OracleType.RAW, b"\x01\x02\xff"),
        ],
    )
    def test_all_others(self, raw: str, type_: OracleType, value: Any) -> None:
        assert decoded(raw, type_) == value
        assert encoder(column(type_))(value) == bytes.fromhex(raw)

    def test_rowid_of_the_one_insert(self) -> None:
        assert rowid_text(72726, 0x0600000E, 0) == "AAARwWAAYAAAAAOAAA"


class TestNumbers:
    @settings(deadline=None)
    @given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**24), max_value=10**24, places=12))
    def test_every_digit_is_kept(self, value: Decimal) -> None:
        assert number_to_decimal(encode_number(value)) == value
        assert Decimal(number_to_text(encode_number(value))) == value

    @settings(deadline=None)
    @given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(-80, 60))
    def test_every_exponent(self, digits: int, exponent: int) -> None:
        raw = encode_number(Decimal(f"{digits}E{exponent}"))
        value, of_ten = parts_of_number(raw)
        assert Decimal(f"{value}E{of_ten}").compare(Decimal(f"{digits}E{exponent}")) == 0
        assert len(raw) <= 21

    @settings(deadline=None)
    @given(st.integers(-(10**18) + 1, 10**18 - 1))
    def test_whole_ones(self, value: int) -> None:
        assert number_to_whole(encode_number(value)) == value
        assert there_and_back(value, OracleType.NUMBER, precision=18, scale=0) == value

    @settings(deadline=None)
    @given(st.lists(st.decimals(-(10**9), 10**9, places=4), min_size=2, max_size=9))
    def test_bytes_sort_as_numbers_do(self, values: list[Decimal]) -> None:
        assert sorted(values) == sorted(values, key=encode_number)

    @pytest.mark.parametrize(
        ("precision", "scale", "kind"),
        [
            (9, 0, ColumnKind.INT32), (10, 0, ColumnKind.INT64), (18, 0, ColumnKind.INT64),
            (19, 0, ColumnKind.DECIMAL), (7, -2, ColumnKind.INT32), (10, 2, ColumnKind.DECIMAL),
            (None, 0, ColumnKind.DECIMAL), (None, None, ColumnKind.STRING), (126, None, ColumnKind.STRING),
            (38, 127, ColumnKind.STRING), (2, 4, ColumnKind.DECIMAL),
        ],
    )  # fmt: skip
    def test_published_as(self, precision: int | None, scale: int | None, kind: ColumnKind) -> None:
        assert published_type(column(OracleType.NUMBER, precision=precision, scale=scale)).kind is kind

    @pytest.mark.parametrize("raw", ["c1", "c100", "c165", "3e0166", "3e66", "68656c6c6f"])
    def test_bytes_that_are_no_number_are_refused(self, raw: str) -> None:
        with pytest.raises(ValueError):
            number_to_decimal(bytes.fromhex(raw))

    def test_fraction_in_a_whole_column_is_refused(self) -> None:
        with pytest.raises(CodecError, match="fraction"):
            decoded("c033", OracleType.NUMBER, precision=5, scale=0)

    def test_no_exponent_in_text(self) -> None:
        assert number_to_text(encode_number(Decimal("1E+30"))) == "1" + "0" * 30
        assert number_to_text(encode_number(Decimal("-1.20E-5"))) == "-0.000012"


class TestFloats:
    @settings(deadline=None)
    @given(st.floats(width=32))
    def test_binary_float(self, value: float) -> None:
        found = there_and_back(value, OracleType.BINARY_FLOAT)
        assert found == value or (math.isnan(found) and math.isnan(value))

    @settings(deadline=None)
    @given(st.floats())
    def test_binary_double(self, value: float) -> None:
        found = there_and_back(value, OracleType.BINARY_DOUBLE)
        assert struct.pack(">d", found) == struct.pack(">d", value) or math.isnan(value)


CHARSETS = {
    "AL32UTF8": "aä€😀", "UTF8": "aä€😀", "WE8ISO8859P1": "aäÿ", "WE8MSWIN1252": "aä€", "US7ASCII": "az",
    "WE8ISO8859P15": "ä€", "EE8ISO8859P2": "őű", "CL8MSWIN1251": "Жя", "JA16SJIS": "日本", "ZHS16GBK": "中文",
    "KO16MSWIN949": "한국", "ZHT16MSWIN950": "中文", "AL16UTF16": "aä€😀", "WE8EBCDIC500": "aA1", "JA16EUC": "日本",
}  # fmt: skip


class TestText:
    @pytest.mark.parametrize(("charset", "text"), CHARSETS.items())
    def test_character_sets(self, charset: str, text: str) -> None:
        found = there_and_back(text, OracleType.VARCHAR2, charset=charset)
        assert (found.decode() if isinstance(found, bytes) else found) == text

    def test_cesu8(self) -> None:
        assert decoded("eda0bdedb880", OracleType.VARCHAR2, charset="UTF8") == "😀"
        assert encoder(column(OracleType.VARCHAR2, charset="UTF8"))("😀") == bytes.fromhex("eda0bdedb880")

    @settings(deadline=None)
    @given(st.text(st.characters(codec="utf-8"), min_size=1))
    def test_any_text(self, text: str) -> None:
        for charset in ("AL32UTF8", "UTF8", "AL16UTF16"):
            found = there_and_back(text, OracleType.VARCHAR2, charset=charset)
            assert (found.decode() if isinstance(found, bytes) else found) == text

    def test_unknown_character_set_is_refused_at_the_start(self) -> None:
        with pytest.raises(StartRefusedError, match="VN8VN3"):
            decoder(column(OracleType.VARCHAR2, charset="VN8VN3"))

    @pytest.mark.parametrize("charset", ["AL32UTF8", "UTF8", "US7ASCII"])
    def test_bytes_of_another_character_set_stop_it_or_are_replaced(self, charset: str) -> None:
        with pytest.raises(CodecError, match=charset):
            decoded("61ff", OracleType.VARCHAR2, charset=charset)
        assert decoded("61ff", OracleType.VARCHAR2, charset=charset, on_bad_text="replace") == "a\ufffd"

    def test_char_has_its_blanks(self) -> None:
        assert there_and_back("ab", OracleType.CHAR, length=4) == b"ab  "
        national = {"charset": "AL16UTF16", "charset_form": 2}
        assert there_and_back("ab", OracleType.CHAR, length=8, **national) == "ab  "

    def test_empty_text_and_none_are_null(self) -> None:
        assert encoder(column(OracleType.VARCHAR2))("") is None
        assert encoder(column(OracleType.NUMBER))(None) is None


class TestTimes:
    @settings(deadline=None)
    @given(st.datetimes())
    def test_date_and_timestamp(self, value: dt.datetime) -> None:
        at = (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)
        assert there_and_back(value, OracleType.TIMESTAMP, scale=6) == at
        assert there_and_back(at, OracleType.TIMESTAMP, scale=6) == at
        assert there_and_back(value.replace(microsecond=0), OracleType.DATE) == at - at % 1_000_000

    @settings(deadline=None)
    @given(st.integers(-210_803_040_000, 253_402_300_799))
    def test_every_second_that_the_database_holds(self, second: int) -> None:
        assert there_and_back(second * 1_000_000, OracleType.DATE) == second * 1_000_000

    def test_bc(self) -> None:
        # 44 BC, the ides of March: the year -43 where there is a year 0
        assert decoded("643803" + "0f010101", OracleType.DATE) == -735_160 * 86_400_000_000
        assert decoded("643803" + "0f010101", OracleType.DATE, as_text=True) == "-0044-03-15T00:00:00"
        assert decoded("35580101010101", OracleType.DATE, as_text=True) == "-4712-01-01T00:00:00"

    def test_day_of_the_julian_calendar(self) -> None:
        with pytest.raises(CodecError, match="Julian"):
            decoded("7364021d010101", OracleType.DATE)
        assert decoded("7364021d010101", OracleType.DATE, as_text=True) == "1500-02-29T00:00:00"

    @pytest.mark.parametrize(
        "raw", ["787e0307022d", "787e0d07022d27", "787e0320022d27", "787e03071a2d27", "781e0307022d27"]
    )
    def test_bytes_that_are_no_date(self, raw: str) -> None:
        with pytest.raises((ValueError, LookupError)):
            decoded(raw, OracleType.DATE)

    @settings(deadline=None)
    @given(
        st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.timezones()),
        st.sampled_from(["+00:00", "-05:30", "+14:00", "Europe/Berlin"]),
    )
    def test_instants(self, value: dt.datetime, zone: str) -> None:
        offset = value.utcoffset()
        assert offset is not None
        at = (value - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
        assert there_and_back(at, OracleType.TIMESTAMP_TZ, scale=6) == at
        if offset.total_seconds() % 60 == 0:
            assert there_and_back(value, OracleType.TIMESTAMP_TZ, scale=6) == at
        if zone[0] in "+-":
            assert there_and_back(at, OracleType.TIMESTAMP_LTZ, scale=6, zone=zone) == at

    def test_local_time_zone_of_a_region(self) -> None:
        at = micros(2026, 7, 1, 10)
        raw = encoder(column(OracleType.TIMESTAMP_LTZ, scale=6, zone="Europe/Berlin"))(at)
        assert raw == encoder(column(OracleType.TIMESTAMP, scale=6))(micros(2026, 7, 1, 12))
        assert there_and_back(at, OracleType.TIMESTAMP_LTZ, scale=6, zone="Europe/Berlin") == at

    @pytest.mark.parametrize("type_", [OracleType.TIMESTAMP, OracleType.TIMESTAMP_TZ, OracleType.TIMESTAMP_LTZ])
    def test_nanoseconds_are_text(self, type_: OracleType) -> None:
        end = "" if type_ is OracleType.TIMESTAMP else "Z"
        for text in ("2026-11-16T10:20:30.123456789", "2026-11-16T10:20:30", "2026-11-16T10:20:30.5"):
            assert there_and_back(text + end, type_, scale=9, zone="+02:00") == text + end

    @settings(deadline=None)
    @given(st.integers(-(10**9) * 12, 10**9 * 12))
    def test_interval_of_months(self, months: int) -> None:
        text = there_and_back(months, OracleType.INTERVAL_YM)
        assert there_and_back(text, OracleType.INTERVAL_YM) == text

    @settings(deadline=None)
    @given(st.timedeltas())
    def test_interval_of_seconds(self, value: dt.timedelta) -> None:
        text = there_and_back(value, OracleType.INTERVAL_DS)
        assert there_and_back(text, OracleType.INTERVAL_DS) == text
        assert encoder(column(OracleType.INTERVAL_DS))(text) == encoder(column(OracleType.INTERVAL_DS))(value)

    def test_negative_intervals(self) -> None:
        assert there_and_back(dt.timedelta(seconds=-1.5), OracleType.INTERVAL_DS) == "PT-1.5S"
        assert there_and_back(dt.timedelta(milliseconds=-500), OracleType.INTERVAL_DS) == "PT-0.5S"
        assert there_and_back(-dt.timedelta(days=1, hours=2), OracleType.INTERVAL_DS) == "P-1DT-2H"


class TestRowids:
    @settings(deadline=None)
    @given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1))
    def test_there_and_back(self, data_object: int, dba: int, slot: int) -> None:
        text = rowid_text(data_object, dba, slot)
        assert there_and_back(text, OracleType.ROWID) == text
        assert there_and_back(text, OracleType.UROWID) == text

    def test_logical(self) -> None:
        assert there_and_back("*BAEAAAoCwQL+", OracleType.UROWID) == "*BAEAAAoCwQL+"


class TestLobs:
    @settings(deadline=None)
    @given(st.binary(max_size=4000))
    def test_blob_in_the_row(self, value: bytes) -> None:
        assert there_and_back(value, OracleType.BLOB) == value

    @settings(deadline=None)
    @given(st.text(st.characters(codec="utf-8"), max_size=500))
    def test_clob_in_the_row(self, value: str) -> None:
        assert there_and_back(value, OracleType.CLOB) == value

    def test_secure_file_as_dumped(self) -> None:
        raw = "00540001020c80800002000000010000002c0df5000e4890000800000401" + "00610062"
        assert decoded(raw, OracleType.CLOB) == "ab"

    def test_basic_file_as_dumped(self) -> None:
        head = "00540001010c0000000100000001000001f0457c"
        assert decoded(head + "00140900000000000004000000000001" + "01020304", OracleType.BLOB) == b"\1\2\3\4"
        assert decoded(head + "00100900000000000000000000000000", OracleType.BLOB) == b""

    def test_single_byte_character_set(self) -> None:
        head = "00540001020c0000000100000001000001f0457c"
        raw = head + "00120900000000000002000000000001" + "61e4"
        assert decoded(raw, OracleType.CLOB, charset="WE8ISO8859P1") == "aä"

    def test_out_of_the_row(self) -> None:
        decode = decoder(column(OracleType.BLOB))
        assert decode is not None
        assert decode(lobs.distant_locator(is_text=False)) is MISSING

    def test_long_varchar2(self) -> None:
        assert there_and_back("x" * 5000, OracleType.VARCHAR2, is_lob=True) == "x" * 5000

    @pytest.mark.parametrize("raw", ["0054", "00540001010c0000000100000001000001f0457c0015" + "0900" * 9])
    def test_locator_that_is_not_understood(self, raw: str) -> None:
        with pytest.raises(CodecError, match="locator"):
            decoded(raw, OracleType.BLOB)


class TestWhatTheLogDoesNotHave:
    @pytest.mark.parametrize("type_", [58, 111, 114, 119, 121, 122, 123, 127])
    def test_no_decoder(self, type_: int) -> None:
        assert decoder(column(type_)) is None

    def test_unknown_type_is_refused(self) -> None:
        with pytest.raises(LogUnknownError, match="999"):
            decoder(column(999))


@pytest.mark.parametrize(
    ("raw", "type_", "text"),
    [
        ("c102", OracleType.NUMBER, "1"),
        ("0aff", OracleType.RAW, "0AFF"),
        ("bff8000000000000", OracleType.BINARY_DOUBLE, "1.5"),
        ("01", OracleType.BOOLEAN, "true"),
        ("787e0307022d29", OracleType.TIMESTAMP, "2026-03-07T01:44:40"),
        ("787e0307022d29143c", OracleType.TIMESTAMP_TZ, "2026-03-07T01:44:40Z"),
    ],
)
def test_as_text(raw: str, type_: OracleType, text: str) -> None:
    assert decoded(raw, type_, as_text=True, precision=5, scale=0) == text
    assert published_type(column(type_, as_text=True)).kind is ColumnKind.STRING
