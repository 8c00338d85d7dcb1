"""Rows of any columns with any nulls; names from the log or from the catalogue; parts of rows."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.versions import Change
from tests.unit.mysql.binlog import ITEMS, UTF8MB4, Fed, Log, NoServer, column, item, row, table_map

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.mysql.wire import events as ev
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.table_map import TableMap


class Sort(NamedTuple):
    """A column's type and metadata, values of it, and how a server writes one down."""

    type: int
    metadata: bytes
    values: st.SearchStrategy[Any]
    write: Callable[[Any], bytes]
    is_unsigned: bool = False
    is_text: bool = False


def _counted(size: int) -> Callable[[Any], bytes]:
    def write(value: str | bytes) -> bytes:
        data = value.encode() if isinstance(value, str) else value
        return len(data).to_bytes(size, "little") + data

    return write


_SORTS = [
    Sort(tm.TINY, b"", st.integers(-128, 127), struct.Struct("<b").pack),
    Sort(tm.SHORT, b"", st.integers(0, 65535), struct.Struct("<H").pack, is_unsigned=True),
    Sort(tm.INT24, b"", st.integers(-(1 << 23), (1 << 23) - 1), lambda n: n.to_bytes(3, "little", signed=True)),
    Sort(tm.LONG, b"", st.integers(0, (1 << 32) - 1), struct.Struct("<I").pack, is_unsigned=True),
    Sort(tm.LONGLONG, b"", st.integers(-(1 << 63), (1 << 63) - 1), struct.Struct("<q").pack),
    Sort(
        tm.LONGLONG,
        b"",
        st.integers(0, (1 << 64) - 1).map(Decimal),
        lambda d: struct.pack("<Q", int(d)),
        is_unsigned=True,
    ),
    Sort(tm.DOUBLE, b"\x08", st.floats(allow_nan=False), struct.Struct("<d").pack),
    Sort(tm.YEAR, b"", st.integers(1901, 2155), lambda y: bytes([y - 1900])),
    Sort(tm.VARCHAR, b"\x50\x00", st.text(max_size=20), _counted(1), is_text=True),
    Sort(tm.VARCHAR, b"\x00\x04", st.text(max_size=60), _counted(2), is_text=True),
    Sort(tm.BLOB, b"\x03", st.text(max_size=60), _counted(3), is_text=True),
    Sort(tm.GEOMETRY, b"\x04", st.binary(max_size=40), _counted(4)),
    Sort(tm.BIT, b"\x01\x01", st.binary(min_size=2, max_size=2), bytes),
]


@st.composite
def _tables(draw: st.DrawFn) -> tuple[list[Sort], list[list[Any]]]:
    sorts = draw(st.lists(st.sampled_from(_SORTS), min_size=1, max_size=20))
    values = st.tuples(*(st.none() | sort.values for sort in sorts)).map(list)
    return sorts, draw(st.lists(values, min_size=1, max_size=5))


def _written(sorts: list[Sort], values: list[Any]) -> bytes:
    return row(*(None if v is None else sort.write(v) for sort, v in zip(sorts, values, strict=True)))


def _changes(fed: Fed, log: Log) -> list[Change]:
    fed.assembler.feed_all(log.take())
    (transaction,) = fed.assembler.committed
    return [fed.encoders.change(frame) for frame in transaction.changes]


def _begin() -> Log:
    log = Log()
    log.begin()
    log.gtid()
    log.query("BEGIN")
    return log


@given(_tables())
def test_rows_of_any_columns_with_any_nulls(tmp_path_factory: pytest.TempPathFactory, table: Any) -> None:
    sorts, rows = table
    names = [f"c{n}" for n in range(len(sorts))]
    log = _begin()
    unsigned = [n for n, sort in enumerate(sorts) if sort.is_unsigned]
    collations = [UTF8MB4 for sort in sorts if sort.is_text]
    kinds = [(sort.type, sort.metadata) for sort in sorts]
    log.table(table_map(9, "any", kinds, names=names, unsigned=unsigned, collations=collations, key=()))
    written = [_written(sorts, values) for values in rows]
    log.rows(ev.WRITE_ROWS, 9, len(sorts), b"".join(written))
    log.rows(ev.UPDATE_ROWS, 9, len(sorts), written[0] + written[-1])
    log.rows(ev.DELETE_ROWS, 9, len(sorts), written[0])
    log.xid()
    found = _changes(Fed(tmp_path_factory.getbasetemp()), log)
    expected = [dict(zip(names, values, strict=True)) for values in rows]
    assert [change.after for change in found[: len(rows)]] == expected
    assert (found[-2].before, found[-2].after) == (expected[0], expected[-1])
    assert (found[-1].before, found[-1].after) == (expected[0], None)


def test_what_an_index_hides_is_read_and_not_shown(tmp_path: Path) -> None:
    log = _begin()
    names = ["id", "!hidden!i!0!0", "n"]
    log.table(table_map(9, "t", [(tm.LONG, b""), (tm.LONGLONG, b""), (tm.LONG, b"")], names=names))
    log.rows(ev.WRITE_ROWS, 9, 3, row(struct.pack("<i", 1), struct.pack("<q", 2), struct.pack("<i", 3)))
    log.xid()
    assert [change.after for change in _changes(Fed(tmp_path), log)] == [{"id": 1, "n": 3}]


def test_parts_of_rows_name_what_is_missing(tmp_path: Path) -> None:
    log = _begin()
    log.table(ITEMS)
    one = struct.pack("<i", 1)
    log.rows(ev.UPDATE_ROWS, 70, 2, row(one) + row(b"\x01b"), b"\xfd", b"\xfe")
    log.rows(ev.UPDATE_ROWS, 70, 2, row(one) + row(struct.pack("<i", 2)), b"\xfd", b"\xfd")
    log.rows(ev.WRITE_ROWS, 70, 2, row(one), b"\xfd")
    log.rows(ev.DELETE_ROWS, 70, 2, row(one), b"\xfd")
    log.xid()
    named, moved, inserted, deleted = _changes(Fed(tmp_path), log)
    assert (named.before, named.after, named.unchanged) == (
        {"id": 1, "name": None}, {"id": 1, "name": "b"}, []
    )  # fmt: skip
    assert (moved.after, moved.unchanged) == ({"id": 2, "name": None}, ["name"])
    assert inserted.after == {"id": 1, "name": None}
    assert deleted.before == {"id": 1, "name": None}


def test_an_insert_without_a_column_that_has_a_default_stops_the_source(tmp_path: Path) -> None:
    log = _begin()
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, row(struct.pack("<i", 1)), b"\xfd")
    with pytest.raises(LogUnknownError, match="without name"):
        Fed(tmp_path, catalogue=NoServer(filled=["name"])).feed(log)


_BARE = table_map(70, "items", [(tm.LONG, b""), (tm.VARCHAR, b"\x50\x00")], collations=[UTF8MB4])


def _known(*columns: Any) -> NoServer:
    return NoServer(TableMap("shop", "items", columns, is_full=True, key=(0,)))


def test_names_come_from_the_catalogue_where_the_log_has_none(tmp_path: Path) -> None:
    log = _begin()
    log.table(_BARE)
    log.rows(ev.WRITE_ROWS, 70, 2, item(1, "a"))
    log.xid()
    known = _known(column(tm.LONG, name="key"), column(tm.VARCHAR, 80, "text", collation=UTF8MB4))
    fed = Fed(tmp_path, catalogue=known)
    assert [change.after for change in _changes(fed, log)] == [{"key": 1, "text": "a"}]
    assert fed.seen["shop.items"].key == ("key",)


@pytest.mark.parametrize(
    ("known", "what"),
    [
        (NoServer(), "was dropped"),
        (_known(column(tm.LONG, name="id")), "1 columns now, and 2 in the log"),
        (_known(column(tm.LONG, name="id"), column(tm.DATE, name="name")), "another type now"),
    ],
)
def test_a_catalogue_that_does_not_fit_the_log_stops_the_source(tmp_path: Path, known: NoServer, what: str) -> None:
    log = _begin()
    log.table(_BARE)
    with pytest.raises(LogUnknownError, match=what) as refused:
        Fed(tmp_path, catalogue=known).feed(log)
    assert "binlog_row_metadata" in str(refused.value.hint)


def test_a_type_that_is_not_known_stops_the_source_with_its_table(tmp_path: Path) -> None:
    log = _begin()
    log.table(table_map(9, "t", [(242, b"\x04")], names=["v"]))
    with pytest.raises(LogUnknownError, match=r"shop\.t.*242"):
        Fed(tmp_path).feed(log)


def test_labels_come_with_the_log(tmp_path: Path) -> None:
    log = _begin()
    kinds = [(tm.STRING, bytes([tm.ENUM, 1])), (tm.STRING, bytes([tm.SET, 1])), (tm.STRING, bytes([254, 4]))]
    labels = [(5, [b"p", b"q"]), (6, [b"x", "ü".encode()])]
    log.table(table_map(9, "t", kinds, names=["e", "s", "b"], collations=[63], key=(), labels=labels))
    log.rows(ev.WRITE_ROWS, 9, 3, row(b"\x02", b"\x03", b"\x01a"))
    log.xid()
    (change,) = _changes(Fed(tmp_path), log)
    assert change.after == {"e": "ü", "s": ["p", "q"], "b": b"a\x00\x00\x00"}
