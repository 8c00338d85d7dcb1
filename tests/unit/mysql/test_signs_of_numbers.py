"""Which numbers have a sign: MySQL before 8.0.29 has no bit for a YEAR, later ones and MariaDB have one."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.unit.mysql.binlog import Fed, Log, row, table_map

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.sources.mysql.wire import binary_values as bv
from lowwater_extractor.sources.mysql.wire import table_map as tm

_TYPES = [(tm.LONG, b""), (tm.YEAR, b""), (tm.LONG, b""), (tm.LONG, b""), (tm.SHORT, b"")]
_NAMES = ["pk", "y", "n", "u", "s"]
_SIGNS_FIELD = b"\x01\x01"


def _map(types: list[tuple[int, bytes]], bits: bytes, number: int = 70) -> bytes:
    """With these bits in the place of those that the helper makes."""
    names = _NAMES[: len(types)]
    body = table_map(number, "t", types, names=names)
    made = body.index(b"\x01" + bytes([(sum(kind != tm.YEAR for kind, _ in types) + 7) // 8]), -80)
    size = body[made + 1]
    return body[:made] + b"\x01" + bytes([len(bits)]) + bits + body[made + 2 + size :]


def _unsigned(types: list[tuple[int, bytes]], bits: bytes, *, counts_year: bool) -> list[bool]:
    return [column.is_unsigned for column in tm.parse(_map(types, bits), counts_year=counts_year).columns]


@pytest.mark.parametrize("counts_year", [False, True])
def test_year_that_is_counted_among_the_signs_is_known_by_its_bit(counts_year: bool) -> None:
    # as MySQL 9.7.4 wrote it: 0101 0; without the YEAR there would be a bit that belongs to no column, or a wrong one
    assert _unsigned(_TYPES, b"\x50", counts_year=True) == [False, True, False, True, False]
    # as MySQL 8.0.12 wrote it: 0010; the YEAR's bit would not be set
    assert _unsigned(_TYPES, b"\x20", counts_year=counts_year) == [False, False, False, True, False]


def test_signs_that_fit_with_and_without_the_year_are_decided_by_the_server_version() -> None:
    types = [(tm.YEAR, b""), (tm.LONG, b"")]
    assert _unsigned(types, b"\x80", counts_year=True) == [True, False]
    assert _unsigned(types, b"\x80", counts_year=False) == [False, True]
    # and here only one is possible, whatever the version says
    assert _unsigned(types, b"\xc0", counts_year=False) == [True, True]
    assert _unsigned(types, b"\x00", counts_year=True) == [False, False]


@pytest.mark.parametrize("bits", [b"", b"\x20\x00", b"\x01", b"\x0f\xff"])
def test_signs_that_fit_no_way_of_counting_are_refused(bits: bytes) -> None:
    with pytest.raises(LogUnknownError, match=r"signs of the numbers of shop\.t"):
        tm.parse(_map(_TYPES, bits))


@pytest.mark.parametrize(("version", "bits"), [("8.0.12", b"\x20"), ("8.0.28", b"\x20"), ("9.7.4-2", b"\x50")])
def test_numbers_after_a_year_column_keep_their_sign(tmp_path: Path, version: str, bits: bytes) -> None:
    log = Log()
    log.rotate(artificial=True)
    log.format(version=version)
    log.gtid()
    log.query("BEGIN")
    log.table(_map(_TYPES, bits))
    values = (struct.pack("<i", 123), bytes([141]), struct.pack("<i", -8489734), struct.pack("<I", 3_000_000_000),
              struct.pack("<h", -5))  # fmt: skip
    log.rows(30, 70, 5, row(*values))
    log.xid()
    (found,) = Fed(tmp_path).feed(log)
    assert found.changes[0].after == (123, 2041, -8489734, 3_000_000_000, -5)


@pytest.mark.parametrize(
    "damaged",
    [
        (0x8000000000 + ((2026 * 13 + 1) << 22) + (1 << 17) + (24 << 12)).to_bytes(5, "big"),
        (0x8000000000 + ((2026 * 13 + 1) << 22) + (1 << 17) + (60 << 6)).to_bytes(5, "big"),
        (0x8000000000 + ((2026 * 13 + 1) << 22) + (1 << 17) + 60).to_bytes(5, "big"),
        (0x8000000000 + ((10_000 * 13 + 1) << 22) + (1 << 17)).to_bytes(5, "big"),
    ],
)
def test_datetime_that_is_no_time_of_day_is_refused(damaged: bytes) -> None:
    with pytest.raises(CodecError, match="not a date or time"):
        bv.datetime(0)(damaged)
    with pytest.raises(CodecError, match="not a date or time"):
        bv.timestamp(6)(b"\x60\x00\x00\x00\xff\xff\xff")
