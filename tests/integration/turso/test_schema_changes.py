"""Tables that change while they are captured; Turso writes down some of it, and some of it not."""

from __future__ import annotations

import pytest
from tests.integration.turso.conftest import NewFile
from tests.support.turso_file import Captured, captured

from lowwater.errors import StartRefusedError

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"


def _columns(reading: Captured, table: str = "main.t") -> list[str]:
    return [column.name for column in reading.stream.seen[table].columns]


def _check_now(reading: Captured) -> None:
    """As if the time for a look at the schema had come."""
    reading.drain()
    reading.stream._checked_at = 0.0  # type: ignore[attr-defined]
    reading.drain()


def test_columns_come_and_go(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file) as reading:
        file.do(
            "INSERT INTO t VALUES (1, 'x')",
            "ALTER TABLE t ADD COLUMN b INT DEFAULT 7",
            "INSERT INTO t VALUES (2, 'y', 8)",
        )
        file.do("UPDATE t SET a = 'z' WHERE id = 1", "ALTER TABLE t DROP COLUMN a", "INSERT INTO t VALUES (3, 9)")
        afters = [change.after for change in reading.changes()]
        assert afters == [(1, "x"), (2, "y", 8), (1, "z", 7), (3, 9)]
        assert _columns(reading) == ["id", "b"]
        assert reading.source.filled_columns("main.t") == {"b"}


def test_a_transaction_may_alter_between_its_changes(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file) as reading:
        file.do("BEGIN", "INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t ADD COLUMN b INT")
        file.do("INSERT INTO t VALUES (2, 'y', 8)", "COMMIT")
        (transaction,) = reading.drain().contents()
        assert [change.after for change in transaction.changes] == [(1, "x"), (2, "y", 8)]


@pytest.mark.parametrize("polls", [0, 3])
def test_who_resumes_reads_each_row_as_it_was_then(new_file: NewFile, polls: int) -> None:
    file = new_file()
    file.do(T)
    reading = Captured(file.source(read_bytes=100))
    try:
        for number in range(6):
            file.do(f"INSERT INTO t (id) VALUES ({number})", f"ALTER TABLE t ADD COLUMN c{number} INT")
        for _ in range(polls):
            reading.poll()
        given = [change for t in reading.contents() for change in t.changes]
        reading = reading.resumed()
        rest = reading.changes()
        widths = [len(change.after or ()) for change in [*given, *rest]]
        assert widths == [2, 3, 4, 5, 6, 7]
    finally:
        reading.stream.close()


def test_a_new_table_is_captured_and_a_dropped_one_is_empty(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file) as reading:
        file.do("CREATE TABLE n (id INTEGER PRIMARY KEY)", "INSERT INTO n VALUES (1)", "INSERT INTO t VALUES (1, 'x')")
        file.do("DROP TABLE t", T.replace("a TEXT", "a INT"), "INSERT INTO t VALUES (1, 5)")
        assert reading.state() == {"main.n": {1: (1,)}, "main.t": {1: (1, 5)}}
        assert [change.op for change in reading.changes() if change.table == "main.t"] == ["c", "t", "c"]


def test_a_column_that_is_renamed_has_its_new_name_soon(new_file: NewFile) -> None:
    """Turso writes nothing down about it."""
    file = new_file()
    file.do(T)
    with captured(file) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')")
        reading.drain()
        file.do("ALTER TABLE t RENAME COLUMN a TO b")
        _check_now(reading)
        assert _columns(reading) == ["id", "b"]
        file.do("INSERT INTO t VALUES (2, 'y')")
        assert reading.state()["main.t"] == {1: (1, "x"), 2: (2, "y")}


@pytest.mark.parametrize("read_bytes", [100, 1 << 20], ids=["in many polls", "in one poll"])
def test_a_table_whose_column_was_renamed_is_stale_before_the_rows_that_come_after_it(
    new_file: NewFile, read_bytes: int
) -> None:
    file = new_file()
    file.do(T, "CREATE TABLE other (id INTEGER PRIMARY KEY)")
    reading = Captured(file.source(read_bytes=read_bytes, audit_seconds=0))
    try:
        reading.drain()
        file.do("INSERT INTO t VALUES (1, 'x')", "ALTER TABLE t RENAME COLUMN a TO b")
        # some of it is logged, too
        file.do(
            "INSERT INTO t VALUES (2, 'y')", "ALTER TABLE other ADD COLUMN n INT", "INSERT INTO other VALUES (1, 2)"
        )
        # more rows than are taken out of the engine at once
        file.do(*(f"INSERT INTO t VALUES ({number}, 'z')" for number in range(3, 1600)))
        polled = reading.poll()
        assert polled.transactions
        assert set(polled.stale) == {"main.t"}
        reading.drain()
        assert _columns(reading) == ["id", "b"]
    finally:
        reading.stream.close()


def test_rows_of_tables_that_have_each_others_names_for_a_time_make_them_stale(new_file: NewFile) -> None:
    """No rename is in the log: rows under a name may be of another table, with other columns."""
    file = new_file()
    other = "CREATE TABLE other (id INTEGER PRIMARY KEY, n INT, m INT)"
    file.do(T, other, "INSERT INTO other VALUES (1, 1, 1)")

    def swap() -> None:
        file.do("ALTER TABLE t RENAME TO x", "ALTER TABLE other RENAME TO t", "ALTER TABLE x RENAME TO other")

    with captured(file, audit_seconds=0) as reading:
        reading.drain()
        swap()
        file.do("INSERT INTO t VALUES (2, 2, 2)", "INSERT INTO other VALUES (3, 'text')")
        file.do("ALTER TABLE t RENAME TO y", "INSERT INTO y VALUES (4, 4, 4)", "ALTER TABLE y RENAME TO t")
        swap()
        file.do("INSERT INTO t VALUES (5, 'x')")
        polled = reading.poll()
        assert set(polled.stale) == {"main.t", "main.other"}
        reading.drain()
        file.do("INSERT INTO t VALUES (6, 'y')", "INSERT INTO other VALUES (7, 7, 7)")
        assert [change.after for change in reading.changes()][-2:] == [(6, "y"), (7, 7, 7)]


def test_a_table_that_is_renamed_is_captured_under_its_new_name(new_file: NewFile) -> None:
    file = new_file()
    file.do(T, "INSERT INTO t VALUES (1, 'x')")
    with captured(file) as reading:
        file.do("ALTER TABLE t RENAME TO u", "INSERT INTO u VALUES (2, 'y')")
        assert reading.state() == {"main.u": {2: (2, "y")}}
        assert "main.u" in reading.stream.seen, "so that its older rows are copied"


@pytest.mark.parametrize("read_bytes", [1, 1 << 20])
@pytest.mark.parametrize("end", ["DROP TABLE u", "ALTER TABLE u ADD COLUMN n INT"])
def test_name_that_a_table_got_and_lost_between_two_polls_is_stale(
    new_file: NewFile, end: str, read_bytes: int
) -> None:
    """The rename is not in the log, and the rows were never read under that name."""
    file = new_file()
    gone = ("CREATE TABLE u (id INTEGER PRIMARY KEY, a TEXT)", "DROP TABLE u")
    file.do(T, "CREATE TABLE other (id INTEGER PRIMARY KEY)", *gone)
    with captured(file, audit_seconds=0, read_bytes=read_bytes) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')", "INSERT INTO t VALUES (2, 'y')")
        reading.drain()
        file.do("ALTER TABLE t RENAME TO u", *(f"INSERT INTO other VALUES ({n})" for n in range(1, 20)), end)
        polled = reading.poll()
        assert polled.transactions
        assert {"main.u"} <= set(polled.stale), "before the transactions are published"
        reading.drain()


def test_table_that_is_dropped_under_the_name_of_another_between_two_polls_is_stale(new_file: NewFile) -> None:
    file = new_file()
    file.do(T, "CREATE TABLE other (id INTEGER PRIMARY KEY, n INT)", "CREATE TABLE more (id INTEGER PRIMARY KEY)")
    with captured(file, audit_seconds=0) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')", "INSERT INTO other VALUES (1, 1)")
        reading.drain()
        file.do("ALTER TABLE t RENAME TO x", "ALTER TABLE other RENAME TO t", "ALTER TABLE x RENAME TO other")
        file.do("INSERT INTO more VALUES (1)", "DROP TABLE t")
        polled = reading.poll()
        assert polled.transactions
        assert {"main.t", "main.other"} <= set(polled.stale)
        reading.drain()


def test_logged_changes_of_a_schema_make_no_table_stale(new_file: NewFile) -> None:
    file = new_file()
    file.do(
        T, "CREATE TABLE other (id INTEGER PRIMARY KEY, n INT, m INT)", "CREATE TABLE gone (id INTEGER PRIMARY KEY)"
    )
    with captured(file, audit_seconds=0) as reading:
        reading.drain()
        file.do("ALTER TABLE t ADD COLUMN b TEXT", "INSERT INTO t VALUES (1, 'x', 'y')")
        file.do("ALTER TABLE other DROP COLUMN m", "CREATE TABLE new (id INTEGER PRIMARY KEY)", "DROP TABLE gone")
        file.do("ALTER TABLE t ADD COLUMN c TEXT", "DROP TABLE new", "INSERT INTO other VALUES (1, 1)")
        polled = reading.poll()
        assert polled.transactions
        assert not polled.stale
        reading.drain()


def test_what_others_do_to_a_schema_while_nobody_looks_is_found_at_the_start(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    reading = Captured(file.source())
    reading.drain()
    file.do("PRAGMA capture_data_changes_conn('off')", "ALTER TABLE t ADD COLUMN b INT")
    file.do("PRAGMA capture_data_changes_conn('full')")
    reading = reading.resumed()
    try:
        file.do("INSERT INTO t VALUES (1, 'x', 5)")
        assert reading.state() == {"main.t": {1: (1, "x", 5)}}
    finally:
        reading.stream.close()


def test_a_table_made_by_a_select_is_seen_though_its_rows_are_in_no_log(new_file: NewFile) -> None:
    """So that it is copied."""
    file = new_file()
    file.do(T, "INSERT INTO t VALUES (1, 'x')")
    with captured(file, without_key="rowid") as reading:
        file.do("CREATE TABLE c AS SELECT * FROM t")
        assert reading.changes() == []
        assert "main.c" in reading.stream.seen


def test_a_new_table_that_cannot_be_captured_stops_the_source(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file) as reading:
        file.do("CREATE TABLE n (a)")
        with pytest.raises(StartRefusedError, match=r"main\.n has no primary key"):
            reading.drain()
