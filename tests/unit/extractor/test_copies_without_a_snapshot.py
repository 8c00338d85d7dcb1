"""Rows that are read while the database goes on: when they may be shown. Without a database or Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT32, INT64, Column, TableSchema
from lowwater.records.ids import SchemaId
from lowwater.records.positions import ORDER_MAX, ORDER_MIN, Order
from lowwater.records.types import Chunk, TableCopy
from lowwater.records.wire import header
from lowwater_extractor.api import (
    PlannedTable,
    SeenVersions,
    Source,
    SourceTransaction,
    StaleTable,
    Stream,
    ThreadMark,
    ThreadState,
)
from lowwater_extractor.change_batch import FrameList
from lowwater_extractor.encoders import RegisteredEncoders
from lowwater_extractor.snapshot.copies import Copies
from lowwater_extractor.snapshot.stale import put_in_front

HEADERS = {"Copied": b"h", "Stale": b"s"}
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

    def discover(self) -> list[TableSchema]:
        return self.tables_to_copy()

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
        self.copies = Copies("s", cast(Source, database), copies, landed, encoders, HEADERS, lambda _: "", 0)
        #: what a session publishes first
        self.stale = self.copies.pending_stale.take()

    def step(self) -> list[Chunk]:
        return self.copies.plan(Order.mark(self.database.mark), is_at_end=True)

    def is_shown(self) -> bool:
        self.copies.ask_ends(cast(Stream, self.database))
        mark = ThreadMark(1, Order.mark(self.database.mark), b"", ThreadState.OPEN, True)
        return self.copies.announcement({1: mark}, lambda _: ORDER_MIN, 0) is not None


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
    assert session.copies.announcement({1: raised}, lambda _: Order(58, 0), 0) is None
    own = ThreadMark(1, Order.mark(58), b"", ThreadState.OPEN, True)
    found = session.copies.announcement({1: own}, lambda _: Order(58, 0), 0)
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
        found = session.copies.announcement({1: mark}, {1: published}.__getitem__, 0)
        assert found is not None
        assert found.order == order
        published, mark = order, mark._replace(order=order)
    session = Session(database, landed)
    session.step()
    session.copies.ask_ends(cast(Stream, database))
    assert session.copies.announcement({1: mark}, lambda _: published, 0) is None, "the next order may be a commit's"


def test_a_table_that_is_made_since_the_session_began_is_copied_too() -> None:
    """Rows that it was made with are in no log: those of CREATE TABLE AS, say."""
    database, landed = Database(), Landed()
    database.tables_to_copy = list  # type: ignore[method-assign]
    session = Session(database, landed)
    session.copies.look_at_versions({"n.t": TABLE}, Order.mark(0))
    assert session.step() == [], "nobody wants it copied"
    database.tables_to_copy = lambda: [TABLE]  # type: ignore[method-assign]
    session = Session(database, landed)
    assert len(session.step()) == 1
    session.copies.copies.clear()
    session.copies.look_at_versions({"n.t": TABLE}, Order.mark(0))
    assert [chunk.table for chunk in session.step()] == ["n.t"]


def test_table_that_was_dropped_before_it_could_be_copied_is_stale() -> None:
    """It was added to the config, say, and the log has only some of its rows."""
    other = replace(TABLE, table="gone")
    session = Session(Database(), Landed())
    session.copies.look_at_versions({"n.gone": other}, Order.mark(0))
    assert len(session.copies.pending_stale.take()) == 1
    database = Database()
    database.discover = lambda: [TABLE, other]  # type: ignore[method-assign]
    session = Session(database, Landed())
    session.copies.look_at_versions({"n.gone": other}, Order.mark(0))
    assert session.copies.pending_stale.take() == [], "it is there, and is only streamed"


def test_a_copy_for_a_new_version_is_not_planned_below_the_statement_that_made_it() -> None:
    """Rows that were changed before it would lie over the copied ones, without what it gave them."""
    database, landed = Database(), Landed()
    session = Session(database, landed)
    session.step()
    session.copies.copies.clear()
    session.copies.look_at_versions({"n.t": TABLE}, Order.mark(9))
    database.mark = 5
    assert session.step() == []
    database.mark = 9
    assert session.copies.plan(Order.mark(9), is_at_end=False) == [], "its transaction may not be over"
    (chunk,) = session.step()
    assert chunk.low == Order.mark(9)


class Versions(Database):
    """A second version has a column that old rows have a value in, too."""

    second = replace(TABLE, version=2, columns=(*TABLE.columns, Column("filled", INT64)))

    def encoder(self, table: TableSchema) -> Any:
        return type("Encoder", (), {"header": header(SchemaId(table.version))})

    def schema_of(self, schema_id: int) -> str:
        return json.dumps(change_schema(TABLE if schema_id == 1 else self.second))

    def filled_columns(self, table: str) -> set[str]:
        return {"filled"}

    def returned_columns(self, last: int, new: int) -> set[str]:
        return set()


def test_two_versions_of_one_poll_are_both_compared_with_a_copy_that_has_the_second_already() -> None:
    """It was planned while the stream was before both."""
    database, landed = Versions(), Landed()
    copy = TableCopy("n.t", "c", 1, 2, Order.mark(1), Order.mark(1), is_copied=True)
    encoders = cast(RegisteredEncoders, database)
    copies = Copies("s", cast(Source, database), [copy], landed, encoders, HEADERS, database.schema_of, 0)
    seen = SeenVersions()
    seen["n.t"] = replace(TABLE, version=1)
    seen["n.t"] = database.second
    copies.look_at_versions(seen, Order.mark(9))
    assert copies.pending_stale
    assert "n.t" not in copies.copies, "a new session must not take it for right"
    assert copies.plan(Order.mark(8), is_at_end=True) == []
    assert [chunk.table for chunk in copies.plan(Order.mark(9), is_at_end=True)] == ["n.t"]


def test_a_copy_that_is_under_way_when_its_table_becomes_stale_is_not_finished_by_a_new_session() -> None:
    database, landed = Versions(), Landed()
    copy = TableCopy("n.t", "c", 1, 1, Order.mark(1), Order.mark(1), is_copied=False)
    encoders = cast(RegisteredEncoders, database)

    def session(copies: Sequence[TableCopy]) -> Copies:
        return Copies("s", cast(Source, database), copies, landed, encoders, HEADERS, database.schema_of, 0)

    landed.is_whole = False
    first = session([copy])
    first.look_at_versions({"n.t": database.second}, Order.mark(9))
    (kept,) = first.copies.values()
    assert kept.chunks > 1
    assert not kept.is_copied


def test_a_copy_is_planned_anew_when_rows_came_without_changes_above_its_low() -> None:
    database, landed = Database(), Landed()
    session = Session(database, landed)
    database.mark = 5
    (first,) = session.step()
    stale = {"n.t": StaleTable(Order(9, 1), "why")}
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


def test_table_is_named_as_stale_before_its_first_copy_and_only_once() -> None:
    database, landed = Database(), Landed()
    first = Session(database, landed)
    assert len(first.stale) == 1
    first.step()
    again = Session(database, landed, list(first.copies.copies.values()))
    assert again.stale == [], "it was said before its copy was planned"


def test_reset_source_closes_copies_under_way_and_copies_all_tables_again() -> None:
    database, landed = Database(), Landed()
    first = Session(database, landed)
    (chunk,) = first.step()
    known = list(first.copies.copies.values())
    encoders = cast(RegisteredEncoders, database)
    reset = Copies("s", cast(Source, database), known, landed, encoders, HEADERS, lambda _: "", 1)
    assert reset.pending_stale, "rows that changed since then are in no log that is read"
    reset.pending_stale.take()
    again, closing = sorted(reset.plan(Order.mark(3), is_at_end=True), key=lambda c: -c.chunks)
    assert (closing.chunks, closing.replaces) == (0, chunk.copy)
    assert (again.chunks, again.low) == (1, Order.mark(3))
    assert reset.copies["n.t"].generation == 1


def test_stale_table_is_named_at_once_and_copied_when_the_marks_are_there() -> None:
    database, landed = Database(), Landed()
    database.mark = 5
    session = Session(database, landed)
    session.step()
    stale = {"n.t": StaleTable(Order(9, 1), "partition exchanged")}
    session.copies.announce_stale(stale)
    frames = session.copies.pending_stale.take()
    assert len(frames) == 1
    assert b"partition exchanged" in frames[0][1]
    session.copies.announce_stale(stale)
    session.copies.look_at_stale(stale, Order.mark(9))
    assert not session.copies.pending_stale, "said once"
    database.mark = 9
    assert len(session.step()) == 1
    session.copies.announce_stale(stale)
    assert not session.copies.pending_stale, "its copy began after that"


def test_a_view_from_before_its_table_became_stale_once_more_is_not_what_it_is_copied_by() -> None:
    """Such a copy is never readable, and no other one would be planned."""

    class Snapshot(Database):
        """Its view is asked for, and shows the table as of that moment some steps later."""

        def begin_view(self, tables: Sequence[str]) -> View:
            view = View()
            view._left = [PlannedTable(TABLE, Order.mark(self.mark), [(b"1..", 10)])]
            plan, waits = view.plan, [True]
            view.plan = lambda tables_max: [] if waits.pop() and not waits.append(False) else plan(tables_max)  # type: ignore
            return view

    database, landed = Snapshot(), Landed()
    session = Session(database, landed)
    database.mark = 5
    assert session.step() == []
    session.copies.look_at_stale({"n.t": StaleTable(Order(9, 1), "altered")}, Order.mark(9))
    database.mark = 9
    assert session.step() == [], "the view of 5"
    assert session.step() == [], "another one is asked for"
    (chunk,) = session.step()
    assert chunk.low == Order.mark(9)


def test_stale_goes_into_the_first_unpublished_transaction_of_each_thread() -> None:
    def transaction(thread: int, scn: int) -> SourceTransaction:
        return SourceTransaction(thread, f"t{scn}", Order(scn, 1), 0, FrameList([(b"h", b"x")]), 2, 1)

    polled = [transaction(1, 4), transaction(1, 6), transaction(2, 5), transaction(1, 7)]
    found = put_in_front(polled, [(b"s", b"stale")], {1: Order(4, 1)})
    assert [[body for _, body in t.changes] for t in found] == [[b"x"], [b"stale", b"x"], [b"stale", b"x"], [b"x"]]
    assert [t.count for t in found] == [1, 2, 2, 1]
    assert [list(t.changes) for t in found] == [list(t.changes) for t in found], "it can be iterated again"
