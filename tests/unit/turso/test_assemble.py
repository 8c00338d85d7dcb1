"""Rows of the table of changes to transactions: every rule of the log, and of what Turso really writes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import Encoders, PastChange, read
from tests.unit.turso.records import record

from lowwater.errors import CodecError, LogGapError, LogUnknownError, StartRefusedError
from lowwater.records.positions import Order
from lowwater_extractor.sources.turso.assembler import Assembler, LogRow, NowTables
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import COMMIT_MINOR, CapturedMaker
from lowwater_extractor.sources.turso.schema.definitions import Definitions
from lowwater_extractor.sources.turso.tables import Tables
from lowwater_extractor.spill import SpillSpace

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT)"
W = "CREATE TABLE w (a TEXT PRIMARY KEY, v INT)"
INSERT, UPDATE, DELETE, COMMIT = 1, 0, -1, 2


class Log:
    """A table of changes, and what is read out of it."""

    def __init__(
        self, texts: Mapping[str, str] | None = None, now: Mapping[str, str] | None = None, **settings: Any
    ) -> None:
        self.config = TursoConfig(path=Path("x.db"), tables=["main.*"], **settings)
        self.encoders = Encoders()
        maker = CapturedMaker(self.config, "s", self.encoders)
        self.tables = Tables(self.config, "s", Definitions("s", self.config.types), maker)
        self.tables.begin({"t": T, "w": W} if texts is None else texts, 0)
        now_tables: NowTables = lambda _: (now or {}, {})  # noqa: E731
        self.assembler = Assembler(self.config, "s", self.tables, SpillSpace(), 0, now_tables)
        self._last = 0

    def row(
        self, txn: int, kind: int, table: str | None = "t", id_: int | None = 1, before: Any = None, after: Any = None,
        updates: Any = None,
    ) -> LogRow:  # fmt: skip
        self._last += 1
        made = [None if values is None else record(*values) for values in (before, after, updates)]
        return (self._last, 1000 + self._last, txn, kind, table, id_, *made)  # type: ignore[return-value]

    def insert(self, txn: int, key: int = 1) -> LogRow:
        return self.row(txn, INSERT, id_=key, after=(key, "x"))

    def commit(self, txn: int) -> LogRow:
        return self.row(txn, COMMIT, None, None)

    def feed(self, *rows: LogRow, at_end: bool = True) -> list[tuple[str, int, list[PastChange]]]:
        """(txid, order, changes) of what has committed."""
        self.assembler.feed(list(rows))
        if at_end:
            self.assembler.settle()
        found, self.assembler.committed = self.assembler.committed, []
        assert all(t.order == Order(t.order.major, COMMIT_MINOR) and t.thread == 1 for t in found)
        return [(t.txid, t.order.major, list(read(t, self.encoders).changes)) for t in found]


def _shape(found: Iterable[tuple[str, int, list[PastChange]]]) -> list[tuple[str, int, int]]:
    return [(txid, order, len(changes)) for txid, order, changes in found]


# -- transactions ----------------------------------------------------------------------------------------


def test_the_id_is_that_of_the_first_change_and_the_order_that_of_the_commit() -> None:
    log = Log()
    assert _shape(log.feed(log.insert(1), log.insert(1, 2), log.commit(1), log.insert(4, 3), log.commit(4))) == [
        ("1", 3, 2), ("4", 5, 1),
    ]  # fmt: skip
    assert log.assembler.end == 5


def test_a_large_transaction_goes_on_in_the_next_look_right_after_it_went_to_disk(tmp_path: Path) -> None:
    """All that was in memory had just gone to disk: what came next was not counted among its changes."""
    log = Log(spill_bytes_max=1, spill_directory=tmp_path)
    looks = [[log.insert(1, key)] for key in range(1, 6)]
    assert [log.feed(*rows, at_end=False) for rows in looks] == [[]] * 5
    ((_, _, changes),) = log.feed(log.commit(1))
    assert [change.after for change in changes] == [(key, "x") for key in range(1, 6)]


def test_a_commit_row_carries_only_four_fields() -> None:
    log = Log()
    row = log.commit(-1)
    assert [value for value in row if value is not None] == [1, 1001, -1, 2]
    assert log.feed(row) == []


def test_changes_without_their_commit_are_not_published() -> None:
    log = Log()
    assert log.feed(log.insert(1), log.insert(1, 2)) == []
    assert log.assembler.end == 0, "the mark waits for the COMMIT"
    assert _shape(log.feed(log.commit(1))) == [("1", 3, 2)]


def test_a_statement_that_changed_nothing_moves_the_mark_alone() -> None:
    log = Log()
    assert log.feed(log.commit(-1)) == []
    assert log.assembler.end == 1
    assert _shape(log.feed(log.insert(2), log.commit(2), log.commit(-1))) == [("2", 3, 1)]
    assert log.assembler.end == 4


def test_a_transaction_goes_on_behind_the_commit_of_its_trigger() -> None:
    log = Log()
    rows = [log.insert(1), log.commit(1), log.insert(1, 2), log.commit(1), log.insert(5, 3), log.commit(5)]
    assert _shape(log.feed(*rows)) == [("1", 4, 2), ("5", 6, 1)]


def test_the_commit_of_a_trigger_at_the_end_of_a_piece_ends_nothing() -> None:
    log = Log()
    assert log.feed(log.insert(1), log.commit(1), at_end=False) == []
    assert _shape(log.feed(log.insert(1, 2), log.commit(1))) == [("1", 4, 2)]


def test_an_id_that_comes_again_later_is_another_transaction() -> None:
    """After a checkpoint Turso forgets to take a new one."""
    log = Log()
    assert _shape(log.feed(log.insert(1), log.commit(1))) == [("1", 2, 1)]
    assert _shape(log.feed(log.insert(1, 2), log.commit(1))) == [("3", 4, 1)]
    assert log.feed(log.commit(1)) == [], "of one that changed nothing"
    assert log.assembler.end == 5


@pytest.mark.parametrize("next_", ["insert", "commit", "nothing"])
def test_a_transaction_whose_commit_is_missing_stops_the_source(next_: str) -> None:
    log = Log()
    log.feed(log.insert(1))
    row = {"insert": lambda: log.insert(2, 2), "commit": lambda: log.commit(2), "nothing": lambda: log.commit(-1)}[
        next_
    ]()
    with pytest.raises(LogGapError, match="transaction 1: its COMMIT is missing") as caught:
        log.feed(row)
    assert (caught.value.source, caught.value.thread, caught.value.position) == ("s", 1, "2")
    assert "leave_out" in (caught.value.hint or "")


def test_it_is_left_out_and_named_where_the_operator_wants_that() -> None:
    log = Log(without_commit="leave_out")
    assert _shape(log.feed(log.insert(1), log.insert(2, 2), log.commit(2))) == [("2", 3, 1)]
    assert [(thread, txid) for thread, txid, _ in log.assembler.left_out] == [(1, "1")]


def test_a_gap_stops_the_source() -> None:
    log = Log()
    log.insert(1)
    with pytest.raises(LogGapError, match="change 1 is missing: 0 is followed by 2"):
        log.feed(log.commit(1))


def test_a_large_transaction_goes_to_disk_and_comes_back_whole(tmp_path: Path) -> None:
    log = Log(spill_bytes_max=200, spill_directory=tmp_path)
    rows = [log.insert(1, n) for n in range(1, 200)]
    ((txid, order, changes),) = log.feed(*rows, log.commit(1))
    assert (txid, order) == ("1", 200)
    assert [change.after for change in changes] == [(n, "x") for n in range(1, 200)]


def test_a_transaction_of_tables_that_are_not_captured_moves_the_mark_alone() -> None:
    log = Log({"t": T, "turso_sync_state": T})
    assert log.feed(log.row(1, INSERT, "turso_sync_state", after=(1, "x")), log.commit(1)) == []
    assert log.assembler.end == 2


# -- changes ---------------------------------------------------------------------------------------------


def test_every_operation_comes_with_its_rows() -> None:
    log = Log()
    ((_, _, changes),) = log.feed(
        log.row(1, INSERT, after=(1, "a")),
        log.row(1, UPDATE, before=(1, "a"), after=(1, "b"), updates=(0, 1, None, "b")),
        log.row(1, DELETE, before=(1, "b")),
        log.commit(1),
    )
    assert [(c.op, c.before, c.after) for c in changes] == [
        ("c", None, (1, "a")), ("u", (1, "a"), (1, "b")), ("d", (1, "b"), None),
    ]  # fmt: skip


def test_a_row_that_moves_to_another_rowid_has_its_new_self_as_before() -> None:
    log = Log()
    ((_, _, changes),) = log.feed(
        log.row(1, DELETE, id_=1, before=(1, "a")), log.row(1, INSERT, id_=5, before=(5, "a")), log.commit(1)
    )
    assert [(c.op, c.before, c.after) for c in changes] == [("d", (1, "a"), None), ("c", None, (5, "a"))]


def test_of_an_upsert_the_row_before_is_not_believed() -> None:
    log = Log()
    ((_, _, changes),) = log.feed(log.row(1, UPDATE, before=(1, "new"), after=(1, "new")), log.commit(1))
    assert [(c.op, c.before, c.after) for c in changes] == [("u", None, (1, "new"))]


def test_an_upsert_into_a_table_whose_key_is_not_the_rowid_needs_a_word() -> None:
    log = Log()
    with pytest.raises(LogUnknownError, match=r"main\.w: an upsert") as caught:
        log.feed(log.row(1, UPDATE, "w", before=("k", 2), after=("k", 2)))
    assert "keep_key" in (caught.value.hint or "")
    log = Log(upserts="keep_key")
    ((_, _, changes),) = log.feed(log.row(1, UPDATE, "w", before=("k", 2), after=("k", 2)), log.commit(1))
    assert changes == [PastChange("u", "main.w", None, ("k", 2))]


def test_capture_mode_after_gives_rows_and_the_keys_of_those_that_went() -> None:
    log = Log({"t": T}, capture="after")
    ((_, _, changes),) = log.feed(
        log.row(1, INSERT, after=(1, "a")),
        log.row(1, UPDATE, after=(1, "b")),
        log.row(1, DELETE, id_=1),
        log.row(1, INSERT, id_=5, before=(5, "b")),
        log.commit(1),
    )
    assert [(c.op, c.before, c.after) for c in changes] == [
        ("c", None, (1, "a")), ("u", None, (1, "b")), ("d", (1, None), None), ("c", None, (5, "b")),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["id", "before"])
def test_capture_modes_without_rows_give_keys(mode: str) -> None:
    log = Log({"t": T}, capture=mode, copy_tables=False)
    rows = [
        log.row(1, kind, id_=7, before=(7, "x") if mode == "before" and kind != INSERT else None) for kind in (1, 0, -1)
    ]
    ((_, _, changes),) = log.feed(*rows, log.commit(1))
    assert [(c.op, c.before, c.after) for c in changes] == [("c", None, (7,)), ("u", None, (7,)), ("d", (7,), None)]


@pytest.mark.parametrize(("kind", "said"), [(INSERT, "inserted"), (UPDATE, "updated"), (DELETE, "deleted")])
def test_a_writer_that_captures_less_is_found_out(kind: int, said: str) -> None:
    log = Log()
    with pytest.raises(LogUnknownError, match=f"an? {said} row is not in the log") as caught:
        log.feed(log.row(1, kind))
    assert "capture(connection)" in (caught.value.hint or "")


def test_an_unknown_kind_of_change_stops_the_source() -> None:
    log = Log()
    with pytest.raises(LogUnknownError, match="a change of type 3"):
        log.feed(log.row(1, 3, after=(1, "x")))


def test_a_value_that_does_not_fit_names_its_place() -> None:
    log = Log()
    with pytest.raises(CodecError, match=r"main\.t\.b: an integer") as caught:
        log.feed(log.insert(1), log.row(1, INSERT, id_=2, after=(2, 5)))
    assert (caught.value.source, caught.value.thread, caught.value.position) == ("s", 1, "2")


# -- schema ----------------------------------------------------------------------------------------------


def _schema(name: str, sql: str, kind: str = "table") -> tuple[Any, ...]:
    return (kind, name, name, 7, sql)


#: flags and values: the fifth column of `sqlite_schema` is set to the statement
UPDATES = (0, 0, 0, 0, 1, None, None, None, None, "ALTER TABLE …")
WIDER = "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT, c INT)"


def test_columns_count_from_the_change_on_that_brings_them() -> None:
    log = Log()
    ((_, _, changes),) = log.feed(
        log.insert(1),
        log.row(1, UPDATE, "sqlite_schema", 6, _schema("t", T), _schema("t", WIDER), UPDATES),
        log.row(1, INSERT, id_=2, after=(2, "y", 3)),
        log.commit(1),
    )  # fmt: skip
    assert [change.after for change in changes] == [(1, "x"), (2, "y", 3)]
    assert [c.name for c in log.tables.seen["main.t"].columns] == ["id", "b", "c"]


def test_a_table_that_is_dropped_has_no_rows_any_more() -> None:
    log = Log()
    ((_, _, changes),) = log.feed(log.row(1, DELETE, "sqlite_schema", 6, _schema("t", T)), log.commit(1))
    assert changes == [PastChange("t", "main.t", None, None)]


def test_what_is_not_a_table_is_passed_over() -> None:
    log = Log()
    index = _schema("i", "CREATE INDEX i ON t (b)", "index")
    assert log.feed(log.row(1, INSERT, "sqlite_schema", 8, after=index), log.commit(1)) == []


def test_a_new_table_that_cannot_be_captured_stops_the_source() -> None:
    log = Log()
    with pytest.raises(StartRefusedError, match=r"main\.n has no primary key"):
        log.feed(log.row(1, INSERT, "sqlite_schema", 8, after=_schema("n", "CREATE TABLE n (a, b)")))


def test_a_schema_row_that_says_nothing_is_asked_about_later() -> None:
    log = Log({"t": T}, capture="after")
    log.feed(log.row(1, DELETE, "sqlite_schema", 6), log.commit(1))
    unsure = [log.tables.is_unsure]
    log.tables.adopt({}, 2)
    assert [*unsure, log.tables.is_unsure] == [True, False]
    with pytest.raises(LogUnknownError, match="neither in the log nor in the database"):
        log.feed(log.insert(3))


def test_a_column_that_was_added_behind_the_logs_back_is_taken_from_the_database() -> None:
    log = Log(now={"t": WIDER})
    ((_, _, changes),) = log.feed(log.insert(1), log.row(1, INSERT, id_=2, after=(2, "y", 3)), log.commit(1))
    assert [change.after for change in changes] == [(1, "x"), (2, "y", 3)]


def test_a_row_that_fits_neither_the_log_nor_the_database_stops_the_source() -> None:
    log = Log(now={"t": "CREATE TABLE t (b TEXT, id INTEGER PRIMARY KEY, c INT)"})
    with pytest.raises(LogUnknownError, match="a record of 3 values for 2 columns"):
        log.feed(log.row(1, INSERT, id_=2, after=(2, "y", 3)))


def test_a_table_of_which_the_log_did_not_tell_is_taken_from_the_database() -> None:
    log = Log(now={"n": T.replace("t (", "n (")})
    ((_, _, changes),) = log.feed(log.row(1, INSERT, "n", after=(1, "x")), log.commit(1))
    assert changes == [PastChange("c", "main.n", None, (1, "x"))]


# -- what is remembered ----------------------------------------------------------------------------------


def _restored(log: Log, notes: Mapping[str, bytes], at: int) -> Tables:
    maker = CapturedMaker(log.config, "s", log.encoders)
    tables = Tables(log.config, "s", Definitions("s", {}), maker)
    tables.restore(notes, at)
    return tables


def test_the_tables_are_what_they_were_at_every_place_that_can_be_resumed_from() -> None:
    """Also if the notes are durable before the position that is behind them."""
    log = Log({"t": T})
    notes = log.tables.take_notes()
    third = WIDER.replace("c INT", "c INT, d INT")
    log.feed(
        log.row(1, UPDATE, "sqlite_schema", 6, _schema("t", T), _schema("t", WIDER)),
        log.row(1, UPDATE, "sqlite_schema", 6, _schema("t", WIDER), _schema("t", third)),
        log.commit(1),
        log.row(4, DELETE, "sqlite_schema", 6, _schema("t", third)),
        log.commit(4),
    )
    notes |= log.tables.take_notes()
    for at, width in ((0, 2), (3, 4)):
        found = _restored(log, notes, at).find("t")
        assert found is not None
        assert len(found.definition.cells) == width, at
    with pytest.raises(KeyError):
        _restored(log, notes, 5).find("t")


def test_what_no_position_can_need_any_more_is_forgotten() -> None:
    log = Log({"t": T})
    log.feed(log.row(1, UPDATE, "sqlite_schema", 6, _schema("t", T), _schema("t", WIDER)), log.commit(1))
    log.tables.passed(2)
    log.feed(log.row(3, UPDATE, "sqlite_schema", 6, _schema("t", WIDER), _schema("t", T)), log.commit(3))
    assert [since for since, _ in json.loads(log.tables.take_notes()["table/t"])] == [1, 3]
