"""The modes without a log: rows by cursor columns, and whole tables."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.conformance.kit import Encoders, read
from tests.integration.turso.conftest import NewFile
from tests.support.turso_file import TursoFile

from lowwater.errors import CodecError, StartRefusedError
from lowwater.records.positions import Order
from lowwater_extractor.api import Stream, WindowStream

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, stamp, note TEXT)"


class Syncs:
    """A source in the mode `incremental`, a sync at a time."""

    def __init__(self, file: TursoFile, cursor: dict[str, Any], **settings: Any) -> None:
        settings = {"mode": "incremental", "cursors": {"main.t": cursor}, "poll_seconds": 0.001, **settings}
        self._source = file.source(tables=["main.t"], **settings)
        self.encoders = Encoders()
        self._resume: dict[int, bytes] = {}
        self.stream: Stream = self._source.stream({}, {}, self.encoders)

    def sync(self) -> list[tuple[Any, ...]]:
        """All rows that come; each poll is durable before the next."""
        found, quiet = [], 0
        while quiet < 6:
            polled = self.stream.poll(frozenset())
            self._resume = {1: polled.marks[1].resume}
            for transaction in polled.transactions:
                found += [change.after for change in read(transaction, self.encoders).changes if change.after]
            self.stream.acknowledge(self._resume)
            quiet = 0 if polled.transactions else quiet + 1
            time.sleep(0.002)
        return found

    def restart(self) -> None:
        self.stream.close()
        self.stream = self._source.stream(self._resume, {}, self.encoders)


@contextmanager
def syncs(file: TursoFile, cursor: dict[str, Any], **settings: Any) -> Iterator[Syncs]:
    made = Syncs(file, cursor, **settings)
    try:
        yield made
    finally:
        made.stream.close()


def test_rows_come_once_and_again_when_they_have_moved_on(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, "INSERT INTO t VALUES (1, 10, 'a'), (2, 20, 'b')")
    with syncs(file, {"primary": "stamp"}) as reading:
        assert reading.sync() == [(1, "10", "a"), (2, "20", "b")]
        assert reading.sync() == []
        file.do("UPDATE t SET stamp = 30, note = 'c' WHERE id = 1", "INSERT INTO t VALUES (3, 25, 'd')")
        reading.restart()
        assert reading.sync() == [(3, "25", "d"), (1, "30", "c")]


def test_rows_that_are_equal_at_the_boundary_are_told_apart_by_the_secondary(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, "INSERT INTO t VALUES (1, 10, 'a'), (2, 10, 'b')")
    with syncs(file, {"primary": "stamp", "secondary": "id"}) as reading:
        assert [row[0] for row in reading.sync()] == [1, 2]
        file.do("INSERT INTO t VALUES (3, 10, 'c'), (4, 11, 'd')")
        assert [row[0] for row in reading.sync()] == [3, 4]


def test_rows_with_a_null_in_the_primary_come_once_and_first(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, "INSERT INTO t VALUES (1, 10, 'a'), (2, NULL, 'b')")
    with syncs(file, {"primary": "stamp"}) as reading:
        assert [row[0] for row in reading.sync()] == [2, 1]
        file.do("INSERT INTO t VALUES (3, NULL, 'c'), (4, 11, 'd')")
        assert [row[0] for row in reading.sync()] == [4]


def test_a_table_of_nulls_alone_is_read_once(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, "INSERT INTO t VALUES (1, NULL, 'a')")
    with syncs(file, {"primary": "stamp"}) as reading:
        assert [row[0] for row in reading.sync()] == [1]
        assert reading.sync() == []
        file.do("INSERT INTO t VALUES (2, 1, 'a')")
        assert [row[0] for row in reading.sync()] == [2]


def test_a_null_in_the_secondary_lies_behind_all_values(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do("CREATE TABLE t (id INTEGER PRIMARY KEY, stamp INT, second INT)")
    file.do("INSERT INTO t VALUES (1, 10, NULL), (2, 10, 5)")
    with syncs(file, {"primary": "stamp", "secondary": "second"}) as reading:
        assert [row[0] for row in reading.sync()] == [2, 1]
        file.do("INSERT INTO t VALUES (3, 10, 9), (4, 11, 1)")
        assert [row[0] for row in reading.sync()] == [4], "9 lies below the null that was read"


@pytest.mark.parametrize(
    ("values", "overlap"),
    [
        ((100, 95, 80, 101), 10),
        (("'2026-11-16 10:00:00'", "'2026-11-16 09:59:55'", "'2026-11-16 09:00:00'", "'2026-11-16 10:00:01'"), 10),
        (
            ("'2026-11-16T10:00:00.5Z'", "'2026-11-16T09:59:55Z'", "'2026-11-16T09:00:00Z'", "'2026-11-16T10:00:01Z'"),
            10,
        ),
    ],
)
def test_late_rows_come_with_the_next_sync_if_the_overlap_reaches_them(
    new_file: NewFile, values: tuple[Any, ...], overlap: float
) -> None:
    first, late, too_late, next_ = values
    file = new_file(mode="")
    file.do(T, f"INSERT INTO t VALUES (1, {first}, 'a')")
    with syncs(file, {"primary": "stamp", "overlap": overlap}) as reading:
        assert [row[0] for row in reading.sync()] == [1]
        file.do(f"INSERT INTO t VALUES (2, {late}, 'b'), (3, {too_late}, 'c'), (4, {next_}, 'd')")
        assert sorted(row[0] for row in reading.sync()) == [1, 2, 4], "and the row at the bound comes again"


def test_a_sync_that_was_killed_is_read_again_between_the_same_bounds(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, "INSERT INTO t VALUES (1, 10, 'a')")
    with syncs(file, {"primary": "stamp"}) as reading:
        while not (polled := reading.stream.poll(frozenset())).transactions:
            reading._resume = {1: polled.marks[1].resume}
            reading.stream.acknowledge(reading._resume)
        file.do("INSERT INTO t VALUES (2, 20, 'b')")
        reading.restart()
        (transaction,) = [t for _ in range(5) for t in reading.stream.poll(frozenset()).transactions][:1]
        assert [change.after for change in read(transaction, reading.encoders).changes] == [(1, "10", "a")]
        assert transaction.txid == polled.transactions[0].txid


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"cursors": {"main.t": {"primary": "no"}}}, "main.t has no column no"),
        ({"tables": ["main.none"], "cursors": {"main.none": {"primary": "a"}}}, "no such table"),
        ({"tables": ["main.*"], "cursors": {}}, "main.t has no cursor"),
    ],
)
def test_wrong_cursors_are_refused(new_file: NewFile, settings: dict[str, Any], said: str) -> None:
    file = new_file(mode="")
    file.do(T)
    source = file.source(**{"tables": ["main.t"], "mode": "incremental", **settings})
    with pytest.raises(StartRefusedError, match=said):
        source.stream({}, {}, Encoders())
    assert any(not check.is_good for check in source.check())


def test_a_value_that_does_not_fit_stops_the_sync(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do("CREATE TABLE t (id INTEGER PRIMARY KEY, stamp INT, n INT)", "INSERT INTO t VALUES (1, 1, 'text')")
    with syncs(file, {"primary": "stamp"}) as reading, pytest.raises(CodecError, match=r"main\.t\.n"):
        reading.sync()


# -- whole tables ----------------------------------------------------------------------------------------


def test_a_full_refresh_has_marks_that_go_with_the_time_and_all_tables_to_copy(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T)
    source = file.source(mode="full_refresh")
    assert [table.full_name for table in source.tables_to_copy()] == ["main.t"]
    stream = source.stream({}, {}, Encoders())
    assert isinstance(stream, WindowStream)
    first = stream.poll(frozenset()).marks[1]
    end = stream.end_of_log()()
    assert end is not None
    assert end <= stream.poll(frozenset()).marks[1].order
    again = source.stream({1: first.resume}, {1: first.order}, Encoders())
    assert again.poll(frozenset()).marks[1].order >= first.order > Order(0, 0)
    assert all(check.is_good for check in source.check()), "nobody need capture"


def test_a_source_keeps_its_mode(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    stream = file.source().stream({}, {}, Encoders())
    resume = stream.poll(frozenset()).marks[1].resume
    stream.close()
    with pytest.raises(StartRefusedError, match="captured in the mode cdc, but the config has the mode full_refresh"):
        file.source(mode="full_refresh").stream({1: resume}, {}, Encoders())
