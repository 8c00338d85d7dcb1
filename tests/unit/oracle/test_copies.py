"""Copies of tables as of an SCN: each row in one chunk, with the values that the stream has for it."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.support.simulated_copies import SimulatedCopies, StoredTable

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules, Mask, published
from lowwater.errors import CodecError, SnapshotGoneError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import PlannedTable
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.rows.value_writing import encode_number, encoder, rowid_parts
from lowwater_extractor.sources.oracle.rows.values import decoder, rowid_text
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.snapshot.chunks import Bounds, Extent, cuts, pieces
from lowwater_extractor.sources.oracle.snapshot.read import read_chunk
from lowwater_extractor.sources.oracle.snapshot.view import ScnView
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType, published_type

SOURCE = "bank"
T = OracleType


def config(**more: Any) -> OracleConfig:
    settings: dict[str, Any] = {"tables": ["BANK.*"], "host": "db", "service": "FREE", "user": "u", **more}
    return OracleConfig(**settings)


def column(name: str, type_: int, **more: Any) -> OracleColumn:
    if type_ in (T.VARCHAR2, T.CHAR, T.CLOB, T.LONG):
        more.setdefault("charset_form", 1)
        more.setdefault("charset", "AL32UTF8")
    return OracleColumn(name, 1, type_, **more)


ID = column("ID", T.NUMBER, precision=10, scale=0, nullable=False)
NAME = column("NAME", T.VARCHAR2, length=50)


def place(number: int) -> str:
    return rowid_text(100, 5 << 22 | 128 + number // 10, number % 10)


def accounts(database: SimulatedCopies, rows: int = 30, columns: Sequence[OracleColumn] = (ID, NAME)) -> None:
    table = StoredTable(100, list(columns), ("ID",), extents=[(100, 5, 128, 8, 65536), (100, 6, 0, 8, 65536)])
    database.tables["ACCOUNTS"] = table
    for number in range(rows):
        database.insert_row("ACCOUNTS", place(number), {"ID": encode_number(number), "NAME": f"n{number}".encode()})


def planned(view: ScnView) -> PlannedTable:
    (found,) = view.plan(10)
    return found


def chunk_of(table: PlannedTable, number: int = 0) -> Chunk:
    bounds, rows = table.chunks[number]
    assert table.at is not None
    name = table.table.full_name
    return Chunk(SOURCE, "copy", name, number + 1, len(table.chunks), 1, bounds, table.at, table.at, rows, "")


def read(
    database: SimulatedCopies, table: PlannedTable, rules: ColumnRules | None = None, **more: Any
) -> list[dict[str, Any]]:
    avro = json.dumps(change_schema(table.table))
    found: list[dict[str, Any]] = []
    for number in range(len(table.chunks)):
        chunk = chunk_of(table, number)
        for batch in read_chunk(database, config(**more), SOURCE, chunk, avro, rules or ColumnRules()):
            found += batch.to_pylist()
    return found


# --- what is cut ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_each_row_is_in_exactly_one_piece(seed: int) -> None:
    rng = random.Random(seed)
    extents = [
        Extent(rng.choice((100, 101)), rng.choice((4, 5, 1024)), at * 64, rng.randrange(1, 64), 8192) for at in range(9)
    ]
    found = pieces(Bounds("BANK", "T", Scn(1)), cuts(extents, rng.randrange(1, 40)))
    ends = [rowid_parts(piece.high) for piece in found if piece.high is not None]
    assert ends == sorted(set(ends))
    for _ in range(200):
        row = (rng.randrange(99, 103), rng.randrange(1 << 32), rng.randrange(100))
        inside = [
            piece
            for piece in found
            if (piece.low is None or row >= rowid_parts(piece.low))
            and (piece.high is None or row < rowid_parts(piece.high))
        ]
        assert len(inside) == 1


def test_bounds_are_what_they_were() -> None:
    for bounds in pieces(Bounds("BANK", "T", Scn(77)), [place(5)]):
        assert Bounds.decode(bounds.encode()) == bounds
    with pytest.raises(CodecError, match="bounds"):
        Bounds.decode(b'{"colour": 1}')


def test_a_table_is_cut_by_rows_and_planned_at_one_scn() -> None:
    database = SimulatedCopies()
    accounts(database)
    database.tables["ACCOUNTS"].counted = 30
    view = ScnView(config(chunk_rows=5), SOURCE, ["BANK.ACCOUNTS", "BANK.GONE"], database)
    table, gone = view.plan(10)
    assert (len(table.chunks), table.at) == (6, Order.mark(database.scn))
    assert {rows for _, rows in table.chunks} == {5}
    assert gone.chunks == []
    assert view.plan(10) == []
    assert sorted(row["ID"] for row in read(database, table)) == list(range(30))


def test_without_statistics_the_size_counts_and_without_extents_it_is_one_piece() -> None:
    database = SimulatedCopies()
    accounts(database)
    assert len(planned(ScnView(config(chunk_rows=400), SOURCE, ["BANK.ACCOUNTS"], database)).chunks) == 4
    database.tables["ACCOUNTS"].extents = []
    table = planned(ScnView(config(chunk_rows=1), SOURCE, ["BANK.ACCOUNTS"], database))
    assert len(table.chunks) == 1
    assert len(read(database, table)) == 30


def test_rows_are_those_of_the_scn() -> None:
    database = SimulatedCopies()
    accounts(database)
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    database.delete_row("ACCOUNTS", place(3))
    database.insert_row("ACCOUNTS", place(99), {"ID": encode_number(99), "NAME": None})
    assert sorted(row["ID"] for row in read(database, table)) == list(range(30))


# --- what can no longer be read ------------------------------------------------------------------------------------


def test_undo_that_is_gone_is_told_by_its_name() -> None:
    database = SimulatedCopies()
    accounts(database)
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    database.delete_row("ACCOUNTS", place(3))
    database.undo_from = database.tick()
    with pytest.raises(SnapshotGoneError, match="ORA-01555"):
        read(database, table)
    assert database.closed == 1


def test_a_view_sees_what_can_no_longer_be_read() -> None:
    database = SimulatedCopies()
    accounts(database)
    now = 0.0
    view = ScnView(config(chunk_rows=5), SOURCE, ["BANK.ACCOUNTS"], database, clock=lambda: now)
    table = planned(view)
    database.delete_row("ACCOUNTS", place(3))
    database.undo_from = database.tick()
    for _ in range(20):
        now += 10
        assert view.keep(["BANK.ACCOUNTS"]) == []
    # older than a database keeps undo by default: now one chunk after the other is tried
    now += 900
    seen = 0
    while not view.keep(["BANK.ACCOUNTS"]):
        now += 10
        seen += 1
        assert seen <= len(table.chunks)
    database.undo_from = 0
    now += 10
    assert view.keep(["BANK.ACCOUNTS"]) == []
    database.tables["ACCOUNTS"].altered = database.tick()
    assert view.keep(["BANK.ACCOUNTS"]) == []
    now += 10
    assert view.keep(["BANK.ACCOUNTS"]) == ["BANK.ACCOUNTS"]


def test_a_table_that_has_changed_since() -> None:
    database = SimulatedCopies()
    accounts(database)
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    stored = database.tables["ACCOUNTS"]
    # dropped without a trace in the rows: null from then on
    stored.columns = [ID]
    assert {row["NAME"] for row in read(database, table)} == {None}
    stored.columns = [ID, column("NAME", T.DATE)]
    with pytest.raises(SnapshotGoneError, match="another type"):
        read(database, table)
    stored.columns, stored.key = [NAME], ()
    with pytest.raises(SnapshotGoneError, match="a column of the key"):
        read(database, table)
    stored.columns = []
    with pytest.raises(SnapshotGoneError, match="is gone"):
        read(database, table)


# --- values --------------------------------------------------------------------------------------------------------

_ANY = [
    column("WHOLE", T.NUMBER, precision=9, scale=0),
    column("LONG_WHOLE", T.NUMBER, precision=18, scale=0),
    column("HUNDREDS", T.NUMBER, precision=3, scale=-2),
    column("MONEY", T.NUMBER, precision=12, scale=2),
    column("WIDE", T.NUMBER, precision=38, scale=10),
    column("TINY", T.NUMBER, precision=2, scale=50),
    column("ANY_NUMBER", T.NUMBER),
    column("NAME", T.VARCHAR2, length=50),
    column("NATIVE", T.VARCHAR2, length=50, charset_form=2, charset="AL16UTF16"),
    column("FIXED", T.CHAR, length=5),
    column("DAY", T.DATE),
    column("AT", T.TIMESTAMP, scale=6),
    column("AT_FINE", T.TIMESTAMP, scale=9),
    column("AT_ZONE", T.TIMESTAMP_TZ, scale=6),
    column("AT_ZONE_FINE", T.TIMESTAMP_TZ, scale=9),
    column("AT_LOCAL", T.TIMESTAMP_LTZ, scale=6),
    column("RAW_", T.RAW, length=16),
    column("SINGLE_", T.BINARY_FLOAT),
    column("DOUBLE_", T.BINARY_DOUBLE),
    column("MONTHS_", T.INTERVAL_YM),
    column("DAYS_", T.INTERVAL_DS, scale=6),
    column("PLACE", T.ROWID),
    column("FLAG", T.BOOLEAN),
]


def some_bytes(rng: random.Random, described: OracleColumn) -> bytes | None:
    """What a row may have in this column."""
    if rng.random() < 0.1:
        return None
    digits = rng.randrange(10 ** rng.randrange(1, 10))
    value: Any = {
        "WHOLE": rng.randrange(-(10**9) + 1, 10**9),
        "LONG_WHOLE": rng.randrange(-(10**18) + 1, 10**18),
        "HUNDREDS": 100 * rng.randrange(-999, 1000),
        "MONEY": f"{rng.randrange(-(10**12) + 1, 10**12)}E-2",
        "WIDE": f"{rng.randrange(-(10**38) + 1, 10**38)}E-10",
        "TINY": f"{rng.randrange(100)}E-50",
        "ANY_NUMBER": f"{rng.choice(('', '-'))}{digits}E{rng.randrange(-60, 60)}",
        "RAW_": rng.randbytes(rng.randrange(1, 16)),
        "SINGLE_": float(rng.randrange(1000)) / 8,
        "DOUBLE_": rng.choice((rng.random(), float("inf"), -0.0)),
        "PLACE": place(digits % 1000),
        "FLAG": rng.random() < 0.5,
    }.get(described.name)
    if described.type in (T.VARCHAR2, T.CHAR):
        value = "".join(rng.choices("aZ é€😀'\n", k=rng.randrange(1, 9)))
    if described.type in (T.DATE, T.TIMESTAMP, T.TIMESTAMP_TZ, T.TIMESTAMP_LTZ):
        return some_moment(rng, described)
    if described.type == T.INTERVAL_YM:
        turn = rng.choice((-1, 1))
        return (0x8000_0000 + turn * rng.randrange(200)).to_bytes(4) + bytes([60 + turn * rng.randrange(12)])
    if described.type == T.INTERVAL_DS:
        turn = rng.choice((-1, 1))
        clock = bytes(60 + turn * rng.randrange(most) for most in (24, 60, 60))
        fraction = turn * rng.randrange(10**6) * 1000
        return (0x8000_0000 + turn * rng.randrange(100)).to_bytes(4) + clock + (0x8000_0000 + fraction).to_bytes(4)
    return encoder(described)(value)


def some_moment(rng: random.Random, described: OracleColumn) -> bytes:
    # some of them before there was a calendar that all agree on
    year = rng.choice((rng.randrange(-4712, 1583), rng.randrange(1583, 10_000), 1582, 1583)) or 1
    if described.type == T.TIMESTAMP_LTZ:
        year = abs(year) + 1 if abs(year) < 9999 else 9998
    turn = -1 if year < 0 else 1
    head = [100 + turn * (abs(year) // 100), 100 + turn * (abs(year) % 100), rng.randrange(1, 13), rng.randrange(1, 29)]
    raw = bytes([*head, rng.randrange(1, 25), rng.randrange(1, 61), rng.randrange(1, 61)])
    if described.type == T.DATE:
        return raw
    step: int = 10 ** (9 - (described.scale or 0))
    raw += (rng.randrange(10**9) // step * step).to_bytes(4)
    return raw + (b"\x14\x3c" if described.type == T.TIMESTAMP_TZ else b"")


def as_stream(described: OracleColumn, raw: bytes | None) -> Any:
    decode = decoder(described)
    assert decode is not None
    value = None if raw is None else decode(raw)
    is_text = isinstance(value, bytes) and described.type in (T.VARCHAR2, T.CHAR)
    return value.decode() if is_text and isinstance(value, bytes) else value


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_of_the_stream(seed: int, as_text: bool) -> None:
    rng = random.Random(seed)
    database = SimulatedCopies()
    database.tables["ACCOUNTS"] = StoredTable(100, [ID, *_ANY], ("ID",))
    wanted: list[dict[str, Any]] = []
    texts = [f"BANK.ACCOUNTS.{c.name}" for c in _ANY] if as_text else []
    described = [OracleColumn(**{**_fields(c), "as_text": as_text}) for c in _ANY]
    for number in range(60):
        raws = {c.name: some_bytes(rng, c) for c in _ANY}
        database.insert_row("ACCOUNTS", place(number), {"ID": encode_number(number), **raws})
        wanted.append({"ID": number, **{c.name: as_stream(c, raws[c.name]) for c in described}})
    table = planned(ScnView(config(as_text=texts), SOURCE, ["BANK.ACCOUNTS"], database))
    assert [c.type for c in table.table.columns[1:]] == [published_type(c) for c in described]
    avro = json.dumps(change_schema(table.table))
    (batch,) = read_chunk(database, config(as_text=texts), SOURCE, chunk_of(table), avro, ColumnRules())
    for name in batch.schema.names:
        array = batch.column(name)
        if pa.types.is_timestamp(array.type):
            array = array.view(pa.int64())
        assert array.to_pylist() == [row[name] for row in wanted], f"{name}, seed {seed}"


def _fields(described: OracleColumn) -> dict[str, Any]:
    return {name: getattr(described, name) for name in OracleColumn.__dataclass_fields__}


def test_masks_are_those_of_the_stream() -> None:
    rng = random.Random(1)
    database = SimulatedCopies()
    database.tables["ACCOUNTS"] = StoredTable(100, [ID, *_ANY], ("ID",))
    names = [c.name for c in _ANY]
    mask = {f"BANK.ACCOUNTS.{name}": Mask.HASH for name in names}
    mask |= {"BANK.ACCOUNTS.NAME": Mask.NULL, "BANK.ACCOUNTS.MONEY": Mask.REDACT}
    rules = ColumnRules(frozenset({"BANK.ACCOUNTS.FLAG"}), mask, b"secret")
    raws = {c.name: some_bytes(rng, c) for c in _ANY}
    database.insert_row("ACCOUNTS", place(1), {"ID": encode_number(1), **raws})
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    shown, columns = published(table.table, rules)
    (row,) = read(database, table._replace(table=shown), rules)
    wanted: dict[str, Any] = {"ID": 1}
    for each in columns[1:]:
        described = _ANY[each.place - 1]
        value = as_stream(described, raws[described.name])
        wanted[described.name] = None if value is None else each.change(value) if each.change else value
    assert row == wanted


def test_what_the_log_never_has_is_null_and_a_lob_has_its_value() -> None:
    database = SimulatedCopies()
    described = [ID, column("DOC", T.CLOB), column("PICTURE", T.BLOB), column("XML", T.OPAQUE)]
    database.tables["ACCOUNTS"] = StoredTable(100, described, ("ID",))
    values = {"ID": encode_number(1), "DOC": "é".encode(), "PICTURE": b"\0\1", "XML": b"<a/>"}
    database.insert_row("ACCOUNTS", place(1), values)
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    assert read(database, table) == [{"ID": 1, "DOC": "é", "PICTURE": b"\0\1", "XML": None}]


def test_a_day_that_is_in_the_julian_calendar_only_is_refused_as_in_the_stream() -> None:
    database = SimulatedCopies()
    database.tables["ACCOUNTS"] = StoredTable(100, [ID, column("DAY", T.DATE)], ("ID",))
    raw = bytes([115, 100, 2, 29, 1, 1, 1])
    database.insert_row("ACCOUNTS", place(1), {"ID": encode_number(1), "DAY": raw})
    table = planned(ScnView(config(), SOURCE, ["BANK.ACCOUNTS"], database))
    with pytest.raises(CodecError, match=r"BANK\.ACCOUNTS\.DAY.*Julian"):
        read(database, table)
