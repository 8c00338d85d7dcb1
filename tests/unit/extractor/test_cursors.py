"""The decisions of the two-phase cursor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import CodecError
from lowwater.records.positions import Order
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Cursors, Range, Settling, TableCursor

A, B = ("updated_at", "id"), ("id",)
START = Cursors(100, {"s.a": TableCursor(A, ("10", "1")), "s.b": TableCursor(B)})

texts = st.text(max_size=8)
bounds = st.one_of(st.just(LOWEST), st.tuples(texts), st.tuples(texts, st.none() | texts))
cursors_of = st.builds(TableCursor, st.tuples(texts, texts), st.none() | bounds, st.none() | bounds)
anything = st.builds(
    Cursors, st.integers(0, 2**62), st.dictionaries(texts, cursors_of, max_size=4), st.integers(0, 2**60)
)


def test_a_sync_has_an_order_above_the_mark_and_the_mark_passes_it_when_it_is_closed() -> None:
    open_ = START.opened({"s.a": ("12", "7")}, at_us=5)
    assert (START.is_open, open_.is_open, open_.closed().is_open) == (False, True, False)
    assert (open_.mark, open_.order, open_.txid) == (Order.mark(100), Order(101, 1), "sync-101")
    assert open_.mark < open_.order <= open_.closed().mark


def test_only_the_tables_of_the_sync_move() -> None:
    open_ = START.opened({"s.a": ("12", "7")}, at_us=5)
    assert open_.ranges == {"s.a": Range(("10", "1"), ("12", "7"))}
    assert open_.tables["s.a"].committed == ("10", "1")
    closed = open_.closed()
    assert closed.tables["s.a"] == TableCursor(A, ("12", "7"))
    assert closed.tables["s.b"] == START.tables["s.b"]


@given(anything)
def test_what_a_position_holds_is_what_was_put_into_it(cursors: Cursors) -> None:
    assert Cursors.unpack(cursors.pack()) == cursors


@pytest.mark.parametrize("resume", [b"0/16B3748", b"{}", b'{"count": 1, "at_us": 0, "tables": [1]}', b"\xff"])
def test_a_position_of_another_mode_is_refused(resume: bytes) -> None:
    with pytest.raises(CodecError) as caught:
        Cursors.unpack(resume)
    assert "cannot be changed" in (caught.value.hint or "")


# -- the config changes ----------------------------------------------------------------------------------


def test_a_table_that_is_new_or_has_another_cursor_is_read_from_its_beginning() -> None:
    fitted = START.fitted({"s.a": ("id",), "s.b": B, "s.c": B})
    assert fitted.tables == {"s.a": TableCursor(("id",)), "s.b": TableCursor(B), "s.c": TableCursor(B)}
    assert fitted.count == START.count


def test_an_open_sync_goes_on_when_only_others_change() -> None:
    open_ = START.opened({"s.a": ("12", "7")}, at_us=5)
    fitted = open_.fitted({"s.a": A, "s.c": B})
    assert (fitted.ranges, fitted.order, fitted.at_us) == (open_.ranges, open_.order, 5)


@pytest.mark.parametrize("wanted", [{"s.b": B}, {"s.a": ("id",), "s.b": B}])
def test_an_open_sync_whose_table_is_gone_uses_up_its_number(wanted: dict[str, tuple[str, ...]]) -> None:
    open_ = START.opened({"s.a": ("12", "7"), "s.b": ("3",)}, at_us=5)
    fitted = open_.fitted(wanted)
    assert not fitted.is_open
    assert fitted.mark >= open_.order, "what was published of it is abandoned"
    assert fitted.tables["s.b"].committed is None, "its rows come in the next one"


# -- settling --------------------------------------------------------------------------------------------


def test_a_bound_is_read_up_to_once_it_was_seen_long_enough_ago() -> None:
    settling = Settling(10)
    assert settling.ready({"t": ("5",)}, 0) == {}
    assert settling.ready({"t": ("7",)}, 9_999_999) == {}
    assert settling.ready({"t": ("9",)}, 10_000_000) == {"t": ("5",)}
    assert settling.ready({"t": ("9",)}, 20_000_000) == {"t": ("9",)}
    assert settling.ready({}, 30_000_000) == {}
    assert settling.ready({"t": ("11",)}, 40_000_000) == {}, "what was waiting before is forgotten"


def test_without_a_time_to_settle_nothing_waits() -> None:
    settling = Settling(0)
    assert settling.ready({"t": ("5",)}, 7) == {"t": ("5",)}
    assert settling.ready({"t": ("6",), "u": LOWEST}, 7) == {"t": ("6",), "u": LOWEST}


#: when each transaction takes its number, how long it runs, and when there is a look
works = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 9)), max_size=30)
looks = st.lists(st.integers(0, 300), max_size=60).map(sorted)


@given(works, looks)
def test_no_row_of_a_transaction_shorter_than_the_settling_is_passed(
    work: list[tuple[int, int]], times: list[int]
) -> None:
    """Numbers as a sequence gives them: in the order in which they are taken, whenever they commit."""
    settling = Settling(10)
    rows = [(number, taken + runs) for number, (taken, runs) in enumerate(sorted(work), 1)]
    committed, read = 0, set[int]()
    for time in [*times, 400, 500]:
        there = {number for number, commits in rows if commits <= time}
        above = [number for number in there if number > committed]
        seen: dict[str, Bound] = {"t": (str(max(above)),)} if above else {}
        for (bound,) in settling.ready(seen, time * 1_000_000).values():
            new = {number for number in there if committed < number <= int(bound or 0)}
            assert not new & read
            read |= new
            committed = int(bound or 0)
    assert read == {number for number, _ in rows}
