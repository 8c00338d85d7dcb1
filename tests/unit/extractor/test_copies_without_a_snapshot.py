"""Rows that are read while the database goes on: when they may be shown. Without a database or Kafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from lowwater.codec.table import INT32, Column, TableSchema
from lowwater.codec.wire import header
from lowwater.ids import SchemaId
from lowwater.positions import ORDER_MAX, ORDER_MIN, Order
from lowwater.records import Chunk, TableCopy
from lowwater_extractor.copies import Copies
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.source import PlannedTable, Source, Stream, ThreadMark, ThreadState

TABLE = TableSchema("s", "n", "t", 1, (Column("id", INT32),), ("id",))


class Landed:
    def __init__(self) -> None:
        self.is_whole = False

    def poll(self) -> None:
        return None

    def has_all(self, copy: TableCopy) -> bool:
        return self.is_whole

    def close(self) -> None:
        return None


class View:
    def __init__(self) -> None:
        self._left = [PlannedTable(TABLE, None, [(b"1..", 10)])]

    def plan(self, tables_max: int) -> list[PlannedTable]:
        planned, self._left = self._left, []
        return planned

    def keep(self, tables: Sequence[str]) -> list[str]:
        return []

    def close(self) -> None:
        return None


class Database:
    """As source, encoders and stream in one. `log_end` is the end of its log, `mark` how far the stream has read."""

    kind = "s"

    def __init__(self) -> None:
        self.log_end = self.mark = 0
        self.seen: dict[str, TableSchema] = {}

    def tables_to_copy(self) -> list[TableSchema]:
        return [TABLE]

    def begin_view(self, tables: Sequence[str]) -> View:
        return View()

    def announce(self, tables: Sequence[TableSchema]) -> None:
        return None

    def versioned(self, table: TableSchema) -> TableSchema:
        return table

    def encoder(self, table: TableSchema) -> Any:
        return type("Encoder", (), {"header": header(SchemaId(7))})

    def poll(self, held: frozenset[int]) -> Any:
        raise AssertionError("not read here")

    def acknowledge(self, resumes: Any) -> None:
        return None

    def close(self) -> None:
        return None

    def end_of_log(self) -> Callable[[], Order | None]:
        end = self.log_end
        return lambda: Order.mark(self.mark) if self.mark >= end else None


class Session:
    def __init__(self, database: Database, landed: Landed, copies: Sequence[TableCopy] = ()) -> None:
        self.database = database
        encoders = cast(RegisteredEncoders, database)
        self.copies = Copies("s", cast(Source, database), copies, landed, encoders, b"h", lambda _: "")

    def step(self) -> list[Chunk]:
        return self.copies.plan(Order.mark(self.database.mark))

    def is_shown(self) -> bool:
        self.copies.ask_ends(cast(Stream, self.database))
        mark = ThreadMark(1, Order.mark(self.database.mark), b"", ThreadState.OPEN, True)
        return self.copies.copied({1: mark}, lambda _: ORDER_MIN, 0) is not None


def test_a_copy_is_shown_when_the_marks_have_passed_what_its_rows_could_see() -> None:
    database, landed = Database(), Landed()
    database.mark, database.log_end = 5, 9
    session = Session(database, landed)
    (chunk,) = session.step()
    assert (chunk.low, chunk.high) == (Order.mark(5), ORDER_MAX)
    database.mark = 20
    assert not session.is_shown(), "its chunks have not landed"
    database.log_end, landed.is_whole = 30, True
    assert not session.is_shown()
    database.mark, database.log_end = 29, 99
    assert not session.is_shown(), "a row may be of 30"
    database.mark = 31
    assert session.is_shown(), "the end is asked for once, or a busy database would never come to it"
    assert session.copies.copies["n.t"].high == Order.mark(31)


def test_the_next_session_asks_again() -> None:
    database, landed = Database(), Landed()
    first = Session(database, landed)
    first.step()
    landed.is_whole, database.log_end = True, 10
    assert not first.is_shown()
    second = Session(database, landed, list(first.copies.copies.values()))
    assert second.step() == [], "what has landed is not read again"
    database.log_end = 40
    assert not second.is_shown()
    database.mark = 40
    assert second.is_shown()


def test_two_copies_do_not_become_readable_at_one_place_of_an_idle_log() -> None:
    """The first one is a mark itself; behind it there may be commits that nobody has read yet."""
    database, landed = Database(), Landed()
    database.mark = database.log_end = 57
    session = Session(database, landed)
    session.step()
    landed.is_whole = True
    session.copies.ask_ends(cast(Stream, database))
    raised = ThreadMark(1, Order(58, 0), b"", ThreadState.OPEN, True)
    assert session.copies.copied({1: raised}, lambda _: Order(58, 0), 0) is None
    own = ThreadMark(1, Order.mark(58), b"", ThreadState.OPEN, True)
    found = session.copies.copied({1: own}, lambda _: Order(58, 0), 0)
    assert found is not None
    assert found.order == Order(59, 0)


def test_where_commits_leave_room_any_number_of_copies_becomes_readable_in_an_idle_log() -> None:
    """A Turso file that nobody writes to has one mark for ever: a second copy of a table was never shown."""
    database, landed = Database(), Landed()
    database.mark = database.log_end = 57
    landed.is_whole = True
    published, mark = ORDER_MIN, ThreadMark(1, Order.mark(57), b"", ThreadState.OPEN, True, free_orders=3)
    for order in (Order(58, 0), Order(58, 1), Order(58, 2)):
        session = Session(database, landed)
        session.step()
        session.copies.ask_ends(cast(Stream, database))
        found = session.copies.copied({1: mark}, {1: published}.__getitem__, 0)
        assert found is not None
        assert found.order == order
        published, mark = order, mark._replace(order=order)
    session = Session(database, landed)
    session.step()
    session.copies.ask_ends(cast(Stream, database))
    assert session.copies.copied({1: mark}, lambda _: published, 0) is None, "the next order may be a commit's"


def test_a_table_that_is_made_since_the_session_began_is_copied_too() -> None:
    """Rows that it was made with are in no log: those of CREATE TABLE AS, say."""
    database, landed = Database(), Landed()
    database.tables_to_copy = list  # type: ignore[method-assign]
    session = Session(database, landed)
    session.copies.look_at_versions({"n.t": TABLE})
    assert session.step() == [], "nobody wants it copied"
    database.tables_to_copy = lambda: [TABLE]  # type: ignore[method-assign]
    session = Session(database, landed)
    assert len(session.step()) == 1
    session.copies.copies.clear()
    session.copies.look_at_versions({"n.t": TABLE})
    assert [chunk.table for chunk in session.step()] == ["n.t"]


def test_a_copy_is_planned_anew_when_rows_came_without_changes_above_its_low() -> None:
    database, landed = Database(), Landed()
    session = Session(database, landed)
    database.mark = 5
    (first,) = session.step()
    stale = {"n.t": Order(9, 1)}
    session.copies.look_at_stale(stale, Order.mark(8))
    assert session.step() == [], "a plan below that place would be no better"
    database.mark = 9
    session.copies.look_at_stale(stale, Order.mark(9))
    (second,) = session.step()
    assert (second.low, second.replaces) == (Order.mark(9), first.copy)
    session.copies.look_at_stale(stale, Order.mark(10))
    assert session.step() == [], "once"
    later = Session(database, landed, list(session.copies.copies.values()))
    later.copies.look_at_stale(stale, Order.mark(10))
    assert [chunk.replaces for chunk in later.step()] == [second.copy], "by itself: it had not landed"
