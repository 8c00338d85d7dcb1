"""Rows of a log to changes, the quick way: the same bytes as the plain way makes, or left to it.

The compiled form is run beside the plain Python that it is made of, also on rows that are none: plain Python checks
every index by itself, so what it takes without an IndexError, the compiled form reads and writes no further.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.kit import Encoders
from tests.support.plain_form import plain_form
from tests.unit.turso.records import Value, blobs, integers, reals, record, texts

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.rules import ColumnRules, Mask
from lowwater.codec.table import Column, ColumnKind, TableSchema
from lowwater.errors import LogUnknownError, LowwaterError
from lowwater.records.ids import SchemaId
from lowwater_extractor import row_program
from lowwater_extractor._native import row_bytes
from lowwater_extractor._native.frames import Frames
from lowwater_extractor.api import Frame
from lowwater_extractor.row_program import Program, What
from lowwater_extractor.sources.mysql.relations import Relation
from lowwater_extractor.sources.mysql.types import Wanted, column_code
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import Captured, CapturedMaker
from lowwater_extractor.sources.turso.schema.definitions import Cell, CellType, Definition

PLAIN = plain_form(row_bytes.__name__)
HEADER = b"\0\0\0\0\7"
TIME_US = 1_763_370_000_000_000


def test_it_is_compiled() -> None:
    """If not: `make setup` builds it."""
    assert str(row_bytes.__file__).endswith(".so")


def test_numbers_are_those_of_the_programs() -> None:
    names = [*What, "STEP", "HIDDEN", "NEVER_NULL", "ROWID", "CREATE", "UPDATE", "DELETE"]
    for name in names:
        is_what = isinstance(name, What)
        key = name.name if is_what else name
        assert getattr(PLAIN, f"_{key}") == (int(name) if is_what else getattr(row_program, name))


# -- Turso -------------------------------------------------------------------------------------------------

_STRATEGIES: dict[CellType, st.SearchStrategy[Value]] = {
    CellType.INTEGER: integers,
    CellType.REAL: reals | st.integers(-(2**53) + 1, 2**53 - 1),
    CellType.TEXT: texts,
    CellType.BLOB: blobs,
}
_KINDS = sorted(_STRATEGIES)


def captured(kinds: Sequence[CellType], *, key: tuple[str, ...] = ("c0",), alias: str = "") -> Captured:
    cells = tuple(Cell(f"c{place}", kind, is_filled=False) for place, kind in enumerate(kinds))
    config = TursoConfig(path="x.db", tables=["main.*"], without_key="rowid")  # type: ignore[arg-type]
    return CapturedMaker(config, "s", Encoders()).make(Definition("t", cells, key, alias, has_rowid=True))


def taken(module: ModuleType, found: Captured, rows: list[Any]) -> tuple[int, int, list[Frame]]:
    q = found.quick
    assert q is not None
    frames = Frames()
    first = not found.definition.key
    count, size = module.take_changes(rows, 0, q.code, q.columns, first, q.header, q.out, q.room, frames)
    assert size == sum(len(body) for _, body in frames)
    return count, size, list(frames)


def the_plain_way(found: Captured, row: tuple[Any, ...]) -> Frame | type[Exception]:
    _, seconds, _, kind, _, rowid, before, after, updates = row
    body = {1: found.insert, 0: found.update, -1: found.delete}[kind]
    try:
        return found.header, body(rowid, before, after, updates, seconds * 1_000_000)
    except LowwaterError as error:
        return type(error)


@st.composite
def turso_rows(draw: st.DrawFn, *, fitting: bool) -> tuple[Captured, list[Any]]:
    kinds = draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=30))
    shape = draw(st.sampled_from(["key", "alias", "none"]))
    if shape == "alias":
        kinds[0] = CellType.INTEGER
    found = captured(kinds, key=() if shape == "none" else ("c0",), alias="c0" if shape == "alias" else "")

    def one() -> bytes:
        any_value = st.one_of(st.none(), *_STRATEGIES.values())
        row = [draw(st.none() | _STRATEGIES[kind] if fitting else any_value) for kind in kinds]
        if fitting and shape == "key":
            row[0] = draw(_STRATEGIES[kinds[0]])
        return record(*row, shorten=draw(st.booleans()))

    rows = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from((1, 0, -1)))
        before = one() if kind != 1 else None
        after = one() if kind != -1 else None
        updates = b"\x01" if kind == 0 else None
        rows.append((10 + number, 1_763_370_000, 9, kind, "t", draw(integers), before, after, updates))
    return found, rows


@given(turso_rows(fitting=True))
def test_changes_of_turso_that_fit_are_taken_as_the_plain_way_takes_them(case: tuple[Captured, list[Any]]) -> None:
    found, rows = case
    for module in (row_bytes, PLAIN):
        count, _, frames = taken(module, found, rows)
        assert count == len(rows)
        assert frames == [the_plain_way(found, row) for row in rows]


@given(turso_rows(fitting=False), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3), st.booleans())
@settings(max_examples=300)
def test_other_changes_of_turso_are_left_to_the_plain_way(
    case: tuple[Captured, list[Any]], damage: list[tuple[int, int]], is_cut: bool
) -> None:
    found, rows = case
    rows = [(*row[:6], *(_damaged(data, damage, is_cut) for data in row[6:8]), row[8]) for row in rows]
    count, _, frames = taken(row_bytes, found, rows)
    assert (count, frames) == (len(frames), taken(PLAIN, found, rows)[2])
    assert frames == [the_plain_way(found, row) for row in rows[:count]]


def _damaged(data: bytes | None, damage: list[tuple[int, int]], is_cut: bool) -> bytes | None:
    if not data:
        return data
    made = bytearray(data)
    for at, byte in damage:
        made[at % len(made)] = byte
    return bytes(made[: damage[0][0] % len(made)]) if is_cut and damage else bytes(made)


def test_a_run_ends_where_something_else_begins() -> None:
    found = captured([CellType.INTEGER], alias="c0")
    row = (10, 1, 9, 1, "t", 1, None, record(1), None)
    others: list[tuple[Any, ...]] = [
        (12, *row[1:]), (11, 1, 8, *row[3:]), (11, 1, 9, 1, "u", *row[5:]), (11, 1, 9, 2, None, None, None, None, None),
        (11, 1, 9, 1, "t", 1, None, None, None), (11, 1, 9, 0, "t", 1, record(1), record(2), None),
        (11, 1, 9, 1, "t", 1, None, record(1, 2), None), (11, 1, 9, 5, "t", 1, record(1), record(1), None),
    ]  # fmt: skip
    for other in others:
        for module in (row_bytes, PLAIN):
            assert taken(module, found, [row, other])[0] == 1
    assert taken(row_bytes, found, [row, (11, *row[1:])])[0] == 2


def test_odd_times_and_long_numbers_are_left_to_the_plain_way() -> None:
    found = captured([CellType.INTEGER], alias="c0")
    for row in (
        (10, 1 << 60, 9, 1, "t", 1, None, record(1), None),
        (10, 1.5, 9, 1, "t", 1, None, record(1), None),
        (10, 1, 9, 1, "t", 1, None, b"\x0b" + b"\x80" * 9 + b"\x01" + b"\x05", None),
    ):
        assert taken(row_bytes, found, [row])[0] == taken(PLAIN, found, [row])[0] == 0


def test_a_rowid_that_is_masked_or_published_as_another_type_has_no_program() -> None:
    cells = (Cell("c0", CellType.TEXT, is_filled=False),)
    config = TursoConfig(path="x.db", tables=["main.*"], without_key="rowid")  # type: ignore[arg-type]
    encoders = Encoders()
    assert CapturedMaker(config, "s", encoders).make(Definition("t", cells, (), "", has_rowid=True)).quick is not None
    alias = Definition("t", cells, ("c0",), "c0", has_rowid=True)
    assert CapturedMaker(config, "s", encoders).make(alias).quick is None
    rules = ColumnRules(mask={"main.t.rowid": Mask.HASH}, hash_key=b"k")
    masked = type("Masked", (Encoders,), {"encoder": lambda _, table: TableEncoder(table, SchemaId(7), rules)})()
    assert CapturedMaker(config, "s", masked).make(Definition("t", cells, (), "", has_rowid=True)).quick is None


def test_a_record_that_is_larger_than_the_buffer_is_left_to_the_plain_way() -> None:
    found = captured([CellType.BLOB], key=())
    assert found.quick is not None
    for size, count in ((found.quick.room - 10, 1), (found.quick.room, 0)):
        row = (10, 1, 9, 1, "t", 1, None, record(bytes(size)), None)
        assert taken(row_bytes, found, [row])[0] == taken(PLAIN, found, [row])[0] == count


# -- MySQL -------------------------------------------------------------------------------------------------


class NoServer:
    def charset(self, collation: int) -> str:
        return "utf8mb4"

    def letters(self, charset: str) -> list[str]:
        raise AssertionError("not asked")


def _fixed(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


def _counted(size: int) -> st.SearchStrategy[bytes]:
    return texts.map(lambda text: len(text.encode()).to_bytes(size, "little") + text.encode())


def _decimal(digits: int, scale: int) -> WireColumn:
    return WireColumn(tm.NEWDECIMAL, digits, scale)


_SORTS: list[tuple[WireColumn, st.SearchStrategy[bytes]]] = [
    *((WireColumn(kind, is_unsigned=sign), _fixed(size))
      for kind, size in ((tm.TINY, 1), (tm.SHORT, 2), (tm.INT24, 3), (tm.LONG, 4)) for sign in (False, True)),
    (WireColumn(tm.LONGLONG), _fixed(8)),
    (WireColumn(tm.FLOAT), st.floats(width=32, allow_nan=False).map(struct.Struct("<f").pack)),
    (WireColumn(tm.DOUBLE), st.floats(allow_nan=False).map(struct.Struct("<d").pack)),
    (WireColumn(tm.VARCHAR, 80, collation=45), _counted(1).filter(lambda data: len(data) < 256)),
    (WireColumn(tm.VARCHAR, 800, collation=45), _counted(2)),
    (WireColumn(tm.BLOB, 3, collation=45), _counted(3)),
    (WireColumn(tm.BLOB, 4, collation=63), _counted(4)),
    (WireColumn(tm.DATE), _fixed(3)),
    *((WireColumn(tm.DATETIME2, digits), _fixed(5 + (digits + 1) // 2)) for digits in (0, 2, 3, 6)),
    *((WireColumn(tm.TIMESTAMP2, digits), _fixed(4 + (digits + 1) // 2)) for digits in (0, 1, 4, 6)),
]  # fmt: skip


def _decimals(digits: int, scale: int) -> tuple[WireColumn, st.SearchStrategy[bytes]]:
    """A number as the server writes it; half of the time whatever bytes are there."""
    limit = 10**digits - 1
    sizes = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)

    def write(n: int) -> bytes:
        text = f"{abs(n):0{digits}}"
        whole, part = text[: digits - scale], text[digits - scale :]
        groups = [whole[: len(whole) % 9], *(whole[i : i + 9] for i in range(len(whole) % 9, len(whole), 9))]
        groups += [part[i : i + 9] for i in range(0, len(part), 9)]
        data = b"".join(int(g).to_bytes(sizes[len(g)], "big") for g in groups if g)
        data = bytes([data[0] | 128]) + data[1:]
        return data if n >= 0 else bytes(byte ^ 255 for byte in data)

    size = len(write(0))
    return _decimal(digits, scale), st.integers(-limit, limit).map(write) | _fixed(size)


_SORTS += [_decimals(*shape) for shape in ((1, 0), (5, 5), (9, 2), (10, 0), (12, 4), (18, 0), (18, 9), (18, 18))]


def relation(wires: Sequence[WireColumn], hidden: frozenset[int] = frozenset()) -> Relation:
    decoders = Decoders(NoServer())
    codes = [column_code(wire, f"n.t.c{i}", decoders, Wanted()) for i, wire in enumerate(wires)]
    shown = [i for i in range(len(codes)) if i not in hidden]
    table = TableSchema("s", "n", "t", 1, tuple(Column(f"c{i}", codes[i].type) for i in shown))
    encoder = Encoders().encoder(table)
    return Relation(table, encoder, codes, shown, [f"c{i}" for i in range(len(codes))], set)


@st.composite
def mysql_rows(draw: st.DrawFn) -> tuple[Relation, list[bytes]]:
    sorts = draw(st.lists(st.sampled_from(_SORTS), min_size=1, max_size=20))
    hidden = frozenset(draw(st.sets(st.integers(0, len(sorts) - 1), max_size=2))) if len(sorts) > 2 else frozenset()

    def one() -> bytes:
        values = [draw(st.none() | data) for _, data in sorts]
        nulls = sum(1 << place for place, value in enumerate(values) if value is None)
        return nulls.to_bytes((len(values) + 7) // 8, "little") + b"".join(v for v in values if v is not None)

    return relation([wire for wire, _ in sorts], hidden), [one() for _ in range(2 * draw(st.integers(1, 2)))]


def rows_taken(module: ModuleType, op: int, q: Program, data: bytes, end: int) -> tuple[int, list[Frame]]:
    frames: list[Frame] = []
    size = module.take_rows(op, data, 3, end, q.code, q.columns, q.header, TIME_US, q.out, q.room, frames)
    return size, frames if size >= 0 else []


def of_plain_rows(found: Relation, op: int, data: bytes, end: int) -> list[Frame] | type[Exception]:
    """As the relation takes them without a program."""
    quick, found._quick = found._quick, None
    take: Callable[..., int] = {0: found.inserts, 1: found.updates, 2: found.deletes}[op]
    bitmap = bytes([found.width]) + b"\xff" * ((found.width + 7) // 8) * (2 if op == 1 else 1)
    frames: list[Frame] = []
    try:
        take(bitmap + data[3:end], 0, len(bitmap) + end - 3, frames, TIME_US)
    except LowwaterError as error:
        return type(error)
    finally:
        found._quick = quick
    return frames


def _is_only_hidden(found: Relation, expected: list[Frame] | type[Exception]) -> bool:
    """What nobody is shown may be no day: the plain way reads it all the same."""
    return not isinstance(expected, list) and len(found._shown) < found.width


@given(mysql_rows(), st.integers(0, 2))
@settings(max_examples=300)
def test_rows_of_mysql_are_taken_as_the_plain_way_takes_them(case: tuple[Relation, list[bytes]], op: int) -> None:
    found, rows = case
    assert found._quick is not None
    data = b"xyz" + b"".join(rows) + b"behind"
    end = len(data) - 6
    size, frames = rows_taken(row_bytes, op, found._quick, data, end)
    assert (size, frames) == rows_taken(PLAIN, op, found._quick, data, end)
    expected = of_plain_rows(found, op, data, end)
    if size >= 0:
        assert frames == expected or _is_only_hidden(found, expected)
        assert size == sum(len(body) for _, body in frames)
    else:
        # random bytes may be the year 0, or a group of more than nine digits: both are the plain way's
        kinds = {code.type.kind for code in found._codes}
        assert not isinstance(expected, list) or kinds & {ColumnKind.DATE, ColumnKind.TIMESTAMP, ColumnKind.DECIMAL}


@given(mysql_rows(), st.integers(0, 2), st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3))
@settings(max_examples=300)
def test_damaged_rows_of_mysql_are_left_to_the_plain_way(
    case: tuple[Relation, list[bytes]], op: int, damage: list[tuple[int, int]]
) -> None:
    found, rows = case
    assert found._quick is not None
    data = bytearray(b"xyz" + b"".join(rows))
    for at, byte in damage:
        data[3 + at % (len(data) - 3)] = byte
    end = 3 + damage[0][0] % (len(data) - 2) if damage else len(data)
    size, frames = rows_taken(row_bytes, op, found._quick, bytes(data), end)
    assert (size, frames) == rows_taken(PLAIN, op, found._quick, bytes(data), end)
    if size > 0:
        expected = of_plain_rows(found, op, bytes(data), end)
        assert frames == expected or _is_only_hidden(found, expected)


def test_lengths_that_would_lead_out_of_the_event() -> None:
    header = relation([WireColumn(tm.BLOB, 4, collation=63)]).encoder.header
    for size in range(1, 9):
        program = Program([row_program.column(What.COUNTED, size)], header)
        for data in (b"xyz\0" + b"\xff" * size, b"xyz\0" + b"\xff" * (size - 1), b"xyz"):
            for module in (row_bytes, PLAIN):
                size_taken = rows_taken(module, 0, program, data, len(data))[0]
                assert size_taken == (0 if data == b"xyz" else -1)


@pytest.mark.parametrize("kind", [tm.BLOB, tm.JSON, tm.GEOMETRY])
def test_a_length_of_more_than_four_bytes_is_refused(kind: int) -> None:
    for size in (0, 5, 8, 255):
        with pytest.raises(LogUnknownError, match=f"a length of {size} bytes"):
            relation([WireColumn(kind, size, collation=63)])


def test_a_table_with_a_masked_column_or_a_type_without_a_quick_way_has_no_program() -> None:
    columns = [row_program.column(What.SIGNED, 4), row_program.column(What.COUNTED, 1)]
    table = relation([WireColumn(tm.LONG), WireColumn(tm.VARCHAR, 80, collation=45)]).table
    encoders = Encoders()
    assert row_program.program(encoders.encoder(table), columns, [0, 1]) is not None
    assert row_program.program(encoders.encoder(table), [columns[0], b""], [0, 1]) is None
    masked = TableEncoder(table, SchemaId(7), ColumnRules(mask={"n.t.c1": Mask.REDACT}))
    assert row_program.program(masked, columns, [0, 1]) is None
    dropped = TableEncoder(table, SchemaId(7), ColumnRules(drop=frozenset(["n.t.c1"])))
    found = row_program.program(dropped, columns, [0, 1])
    assert found is not None
    assert found.code[row_program.STEP] & row_program.HIDDEN
