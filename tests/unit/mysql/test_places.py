"""GTID sets, places and resumes; statements; bounds of chunks; packets."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import CodecError
from lowwater_extractor.incremental.cursors import LOWEST, Range
from lowwater_extractor.sources.mysql.cursor import query as cursor_sql
from lowwater_extractor.sources.mysql.position import PendingGtids, Place, Resume
from lowwater_extractor.sources.mysql.snapshot import chunks
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire._native.split import split, split_events
from lowwater_extractor.sources.mysql.wire.gtid import GtidPosition, GtidSet
from lowwater_extractor.sources.mysql.wire.table_map import WireColumn

_A, _B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4350f323-7565-4e59-8763-4b1b83a0ce0e"


# -- GTIDs -------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from([_A, _B]), st.integers(1, 40)), max_size=60))
def test_a_gtid_set_is_the_set_of_its_transactions(added: list[tuple[str, int]]) -> None:
    found = GtidSet()
    for server, number in added:
        found.add(f"{server}:{number}")
    assert GtidSet.parse(str(found)) == found == found.copy()
    for server in (_A, _B):
        for number in range(1, 42):
            assert (f"{server}:{number}" in found) is ((server, number) in added)
    some = GtidSet()
    for server, number in added[::2]:
        some.add(f"{server}:{number}")
    assert some <= found
    assert (found <= some) is (set(added) <= set(added[::2]))


def test_sets_with_tags_are_read_and_written() -> None:
    found = GtidSet.parse(f"{_A}:1-5:nightly:1-3:7:Other:2")
    assert str(found) == f"{_A}:1-5,{_A}:nightly:1-3:7,{_A}:other:2"
    assert GtidSet.parse(str(found)) == found
    assert f"{_A}:nightly:2" in found
    assert f"{_A}:nightly:4" not in found
    assert GtidSet.parse(f"{_A}:nightly:2") <= found
    data = found.encode()
    assert data[:8] == b"\x01\x03" + bytes(5) + b"\x01"
    assert data[24:25] == b"\x00"
    assert b"\x0enightly" in data
    with pytest.raises(CodecError):
        GtidSet.parse(f"{_A}:1-5:nightly")


def test_a_gtid_set_on_the_wire_has_ends_behind_its_ranges() -> None:
    data = GtidSet.parse(f"{_A}:1-5:11").encode()
    assert struct.unpack_from("<Q", data)[0] == 1
    assert struct.unpack_from("<QQQQQ", data, 24) == (2, 1, 6, 11, 12)


def test_a_gtid_position_of_mariadb_covers_what_comes_before_it_in_its_domain() -> None:
    found = GtidPosition.parse("0-1-42,7-2-9")
    assert "0-3-41" in found
    assert "0-1-43" not in found
    assert "8-1-1" not in found
    found.add("0-5-43")
    assert str(found) == "0-5-43,7-2-9"
    assert GtidPosition.parse("0-1-43") <= found


@pytest.mark.parametrize("text", ["x", f"{_A}:5-1", f"{_A}:a"])
def test_what_is_no_gtid_set_is_refused(text: str) -> None:
    with pytest.raises(CodecError):
        GtidSet.parse(text)


# -- resumes -----------------------------------------------------------------------------------------------


def test_a_resume_reads_as_it_was_written() -> None:
    resume = Resume(
        7, Place("binlog.000042", 1 << 33, f"{_A}:1-5"), _B, 99, ("X'61',X'',1",), Place("binlog.000041", 4)
    )
    assert Resume.unpack(resume.pack()) == resume
    assert not resume.pack().startswith(b"{"), "that is what a position of the mode incremental begins with"
    with pytest.raises(CodecError):
        Resume.unpack(b'{"count": 1}')


@given(st.lists(st.one_of(st.integers(1, 50).map(lambda n: f"{_A}:{n}"), st.integers(1, 50).map(lambda n: f"0-1-{n}"))))
def test_names_of_what_was_handed_over_read_as_they_were_written(names: list[str]) -> None:
    ahead = PendingGtids({5: f"{_A}:7"})
    ahead.add(10, names[:3])
    ahead.add(20, names[3:])
    assert PendingGtids.unpack(ahead.pack(), 0).names == ahead.names
    assert list(PendingGtids.unpack(ahead.pack(), 10).names.values()) == names
    ahead.forget(20)
    assert list(ahead.names.values()) == names[3:]


def test_names_that_come_again_after_a_restart_are_not_counted_twice() -> None:
    ahead = PendingGtids.unpack(PendingGtids({n: f"{_A}:{n}" for n in range(11, 16)}).pack(), 12)
    ahead.add(12, [f"{_A}:{n}" for n in (13, 14, 15, 16)])
    assert ahead.names == {n: f"{_A}:{n}" for n in range(13, 17)}
    ahead.forget(14)
    assert ahead.names == {15: f"{_A}:15", 16: f"{_A}:16"}
    ahead.forget(16)
    assert not ahead
    ahead.add(20, [f"{_A}:1"])
    assert ahead.names == {21: f"{_A}:1"}


def test_names_that_follow_one_another_are_one_range() -> None:
    ahead = PendingGtids()
    ahead.add(100, [f"{_A}:{n}" for n in range(1, 10_001)])
    assert len(ahead.pack()) < 80


# -- bounds ------------------------------------------------------------------------------------------------


def test_the_pieces_of_a_table_are_the_table() -> None:
    whole = Bounds("shop", "t", ("a", "b"), gtids=f"{_A}:1-5")
    cuts: list[chunks.Key] = [(("n", "5"), ("t", "x'y")), (("n", "9"), ("t", "z"))]
    first, middle, last = (chunk.bounds for chunk in chunks.cut(whole, cuts, 300))
    assert first.from_key is None
    assert last.to_key is None
    assert Bounds.decode(middle.encode()) == middle
    assert middle.where == (
        "(`a` >= 5 AND (`a` > 5 OR `b` >= 'x\\'y')) AND (`a` <= 9 AND (`a` < 9 OR `b` < 'z'))"
    )  # fmt: skip
    assert [chunk.bounds.where for chunk in chunks.cut(whole, [], 1)] == ["TRUE"]


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(0, 1 << 40), st.integers(1, 10**9), st.integers(1, 10**6))
def test_cuts_of_numbers_lie_inside_and_rise(low: int, span: int, rows: int, per_chunk: int) -> None:
    cuts = chunks.number_cuts(low, low + span, rows, per_chunk)
    assert cuts == sorted(set(cuts))
    assert all(low < cut <= low + span for cut in cuts)


@pytest.mark.parametrize("wrong", [("n", "1 OR 1=1"), ("x", "zz"), ("q", "a")])
def test_a_literal_that_is_none_is_refused(wrong: chunks.Literal) -> None:
    with pytest.raises(CodecError):
        chunks.literal(wrong)


def test_a_text_cannot_end_its_literal() -> None:
    assert chunks.literal(("t", "a' OR '1\\")) == "'a\\' OR \\'1\\\\'"


@pytest.mark.parametrize("kind", [tm.ENUM, tm.SET, tm.FLOAT, tm.BIT, tm.JSON])
def test_a_key_that_does_not_sort_as_it_is_written_is_not_cut(kind: int) -> None:
    assert chunks.key_letter(WireColumn(kind)) == ""


# -- cursors -----------------------------------------------------------------------------------------------


def test_a_range_of_a_cursor_with_two_columns() -> None:
    table = cursor_sql.Cursored(
        "s", "t", (WireColumn(tm.TIMESTAMP2, 6, name="at"), WireColumn(tm.LONG, name="id")), ("id",), True
    )
    assert cursor_sql.in_range(table, Range(None, LOWEST)) == "`at` IS NULL"
    found = cursor_sql.in_range(table, Range(("2026-01-01 00:00:00", "5"), ("2026-01-02 00:00:00", "9")))
    assert found == (
        "`at` >= '2026-01-01 00:00:00' AND (`at` > '2026-01-01 00:00:00' OR `id` > 5 OR `id` IS NULL)"
        " AND (`at` <= '2026-01-02 00:00:00' AND (`at` < '2026-01-02 00:00:00' OR `id` <= 9))"
    )
    assert "ORDER BY `at` DESC, (`id` IS NULL) DESC, `id` DESC" in cursor_sql.last_row(table, None, 10**15, 5.0)


# -- packets -----------------------------------------------------------------------------------------------


def _packet(payload: bytes, number: int = 0) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number]) + payload


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=10), st.integers(0, 50))
def test_packets_are_split_wherever_a_read_ended(payloads: list[bytes], cut: int) -> None:
    data = b"".join(map(_packet, payloads))
    found, rest = split(data[:cut])
    more, rest = split(rest + data[cut:])
    assert (found + more, rest) == (payloads, b"")


def test_events_that_are_larger_than_a_packet_are_joined() -> None:
    event = b"\x00" + bytes(range(250)) * 80_000
    data = _packet(event[:0xFFFFFF]) + _packet(event[0xFFFFFF:], 1)
    assert split_events(data) == ([event[1:]], b"", b"")
    assert split_events(data[:-1])[0] == []
    exact = b"\x00" + bytes(0xFFFFFF - 1)
    assert split_events(_packet(exact) + _packet(b"", 1))[0] == [exact[1:]]


def test_the_end_of_events_is_told_with_what_came_before_it() -> None:
    found, rest, end = split_events(_packet(b"\x00abc") + _packet(b"\xff\x01\x02#HY000oh"))
    assert (found, rest, end) == ([b"abc"], b"", b"\xff\x01\x02#HY000oh")
