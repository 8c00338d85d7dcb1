"""The bytes of the log: headers, LWNs, rows."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec.table import (
    BOOLEAN,
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    JSON,
    STRING,
    TIMESTAMPTZ,
    UUID,
    Column,
    TableSchema,
    array,
    decimal,
)
from lowwater.errors import LogCorruptError, SourceError
from lowwater_extractor.sources.simulated_rac import log
from lowwater_extractor.sources.simulated_rac.rows import RowCodec, table_from_json, table_to_json
from lowwater_extractor.sources.simulated_rac.workload import ACCOUNTS, TRANSFERS

HEADER = log.FileHeader(thread=2, sequence=7, database=4711, resetlogs=1, first_scn=10, next_scn=log.SCN_NONE, end=0)
ENTRIES = log.ENTRY.pack(11, 1, log.BEGIN, 1) + log.ENTRY.pack(12, 1, log.COMMIT, 9)
DATA = b"\0" + log.TIME.pack(5)
LWN = log.pack_lwn(7, 10, 99, ENTRIES, DATA)


def test_header_comes_back() -> None:
    block = log.pack_header(HEADER)
    assert len(block) == log.BLOCK
    assert log.unpack_header(block) == HEADER
    closed = HEADER._replace(next_scn=20, end=900)
    assert log.unpack_header(log.pack_header(closed)) == closed
    assert closed.closed
    assert not HEADER.closed


@pytest.mark.parametrize("at", [0, 9, 13, 40])
def test_damaged_header_is_noticed(at: int) -> None:
    block = bytearray(log.pack_header(HEADER))
    block[at] ^= 1
    assert log.unpack_header(bytes(block)) is None
    assert log.unpack_header(bytes(block[:100])) is None


def test_lwn_comes_back() -> None:
    lwn = log.unpack_lwn(b"xx" + LWN, 2, 7, 512)
    assert isinstance(lwn, log.Lwn)
    assert (lwn.sequence, lwn.offset, lwn.scn, lwn.time_us, lwn.records) == (7, 512, 10, 99, 2)
    assert (lwn.entries, lwn.data) == (ENTRIES, DATA)


def test_lwn_is_taken_whole_or_not_at_all() -> None:
    for length in range(len(LWN)):
        assert isinstance(log.unpack_lwn(LWN[:length], 0, 7, 512), log.LwnDamage)


@given(at=st.integers(0, len(LWN) - 1), flip=st.integers(1, 255))
def test_lwn_with_any_wrong_byte_is_noticed(at: int, flip: int) -> None:
    wrong = bytearray(LWN)
    wrong[at] ^= flip
    assert isinstance(log.unpack_lwn(bytes(wrong), 0, 7, 512), log.LwnDamage)


def test_lwn_of_an_earlier_round_is_not_taken() -> None:
    assert isinstance(log.unpack_lwn(LWN, 0, 10, 512), log.LwnDamage)


def test_control_file_missing_or_broken(tmp_path: Path) -> None:
    layout = log.Layout(tmp_path)
    with pytest.raises(SourceError, match=r"control\.json is missing"):
        log.read_control(layout)
    layout.control.write_text("{")
    with pytest.raises(LogCorruptError, match="not JSON"):
        log.read_control(layout)


ODD = TableSchema(
    "s",
    "A",
    "ODD",
    3,
    (
        Column("ID", INT64, nullable=False),
        Column("FLAG", BOOLEAN),
        Column("NAME", STRING),
        Column("RAW", BYTES),
        Column("SMALL", decimal(6, 4)),
        Column("LARGE", decimal(38, 10)),
        Column("DAY", DATE),
        Column("AT", TIMESTAMPTZ),
        Column("RATIO", FLOAT64),
        Column("DOC", JSON),
        Column("KEY", UUID),
        Column("TAGS", array(STRING)),
    ),
    ("ID",),
)
ROW = (
    1,
    True,
    "größer",
    b"\0\1",
    Decimal("1.2500"),
    Decimal("12345678901234567890.5"),
    19_000,
    1_700_000_000_000_000,
    0.5,
    '{"a": 1}',
    "8c7e5b0e-6f2c-4d7a-9b3e-0123456789ab",
    ["x", None],
)


@pytest.mark.parametrize("row", [ROW, (2, *[None] * 11)], ids=["all", "nulls"])
def test_rows_of_all_types_come_back(row: tuple[object, ...]) -> None:
    codec = RowCodec(ODD)
    packed = codec.pack(row)
    assert codec.reader("c")(packed, 0) == (None, list(row))
    assert codec.reader("d")(packed, 0) == (list(row), None)
    assert codec.reader("u")(b"...." + packed + codec.pack(ROW), 4) == (list(row), list(ROW))


def test_the_banks_tables_are_plain_structs() -> None:
    assert RowCodec(ACCOUNTS).fixed
    assert RowCodec(TRANSFERS).fixed
    assert not RowCodec(ODD).fixed
    with pytest.raises(ValueError, match="4 columns"):
        RowCodec(ACCOUNTS).pack((1,))


def test_the_dictionary_comes_back() -> None:
    for table in (ODD, ACCOUNTS, TRANSFERS):
        raw = json.loads(json.dumps(table_to_json(table)))
        assert table_from_json(table.source, raw) == table
