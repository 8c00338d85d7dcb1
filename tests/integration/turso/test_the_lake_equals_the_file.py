"""What applications and administrators do to a file, and whether the lake still has what the file has."""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.turso.conftest import NewFile
from tests.integration.turso.lake import Lake
from tests.support.turso_file import Captured, TursoFile

from lowwater.errors import IncarnationError, LogGapError, LowwaterError, SourceLostError, StartRefusedError
from lowwater.turso import FEATURES, capture
from lowwater_extractor.sources.turso import stream

turso = pytest.importorskip("turso", reason="pyturso is not there")

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"
U = "CREATE TABLE u (id INTEGER PRIMARY KEY, a TEXT)"
OPEN = Callable[..., Lake]


@pytest.fixture
def lake_of(new_file: NewFile) -> Iterator[OPEN]:
    made: list[Lake] = []

    def make(*statements: str, mode: str = "full", **settings: Any) -> Lake:
        file = new_file(mode)
        file.do(*statements)
        made.append(Lake(file, **settings))
        return made[-1]

    yield make
    for lake in made:
        lake.close()


def _uncaptured(file: TursoFile, *statements: str) -> None:
    """By a connection of another writer, which does not capture."""
    connection = turso.connect(str(file.path), isolation_level=None, experimental_features=FEATURES)
    for statement in statements:
        connection.execute(statement).fetchall()
    connection.close()


# -- names and columns ---------------------------------------------------------------------------------------


def test_two_tables_that_swap_their_names_are_copied_again(lake_of: OPEN) -> None:
    """Their texts are the same as before: where they lie in the file tells."""
    lake = lake_of(T, U, "INSERT INTO t VALUES (1, 't')", "INSERT INTO u VALUES (1, 'u'), (2, 'u')")
    lake.check()
    lake.file.do("ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u")
    lake.file.do("INSERT INTO t VALUES (3, 'new')")
    lake.check()
    assert set(lake.stale) == {"main.t", "main.u"}
    copies = len(lake.copied)
    lake.restart()
    lake.check()
    assert len(lake.copied) == copies, "once"


def test_two_tables_that_swap_their_names_and_swap_them_back_are_copied_again(lake_of: OPEN) -> None:
    """All is as it was, but for the changes in between, which the log has under the wrong names."""
    lake = lake_of(T, U, "INSERT INTO t VALUES (1, 't')", "INSERT INTO u VALUES (1, 'u'), (2, 'u')")
    lake.check()
    for _ in range(2):
        lake.file.do("ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u")
        lake.file.do("UPDATE t SET a = 'changed' WHERE id = 1")
    lake.check()
    assert set(lake.stale) == {"main.t", "main.u"}


def test_what_is_done_to_the_schema_otherwise_makes_no_table_stale(lake_of: OPEN) -> None:
    lake = lake_of(T, U, "INSERT INTO t VALUES (1, 't')")
    lake.check()
    lake.file.do("CREATE INDEX i ON t (a)", "CREATE VIEW v AS SELECT * FROM t", "ANALYZE")
    lake.check()
    lake.file.do("CREATE TRIGGER tr AFTER INSERT ON t BEGIN DELETE FROM u; END")
    lake.file.do("CREATE TABLE n (id INTEGER PRIMARY KEY)")
    lake.check()
    lake.restart()
    lake.file.do("DROP VIEW v", "DROP TRIGGER tr", "DROP INDEX i", "DROP TABLE n", "ALTER TABLE t ADD COLUMN b INT")
    lake.check()
    assert not lake.stale


def test_two_tables_of_other_columns_that_swap_their_names(lake_of: OPEN) -> None:
    lake = lake_of(T, "CREATE TABLE u (id INTEGER PRIMARY KEY, b INT, c INT)", "INSERT INTO t VALUES (1, 't')")
    lake.check()
    lake.file.do("ALTER TABLE t RENAME TO x", "ALTER TABLE u RENAME TO t", "ALTER TABLE x RENAME TO u")
    lake.file.do("INSERT INTO t VALUES (3, 5, 6)", "INSERT INTO u VALUES (9, 'x')")
    lake.check()


def test_a_table_that_is_built_again_and_renamed_into_place_is_copied_again(lake_of: OPEN) -> None:
    """The usual way to change a constraint; the columns are the same."""
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    lake.check()
    lake.file.do(
        "CREATE TABLE t_new (id INTEGER PRIMARY KEY, a TEXT)",
        "INSERT INTO t_new SELECT id, a || '!' FROM t",
        "DROP TABLE t",
        "ALTER TABLE t_new RENAME TO t",
        "INSERT INTO t VALUES (3, 'z')",
    )
    lake.check()
    assert len(lake.rows["main.t"]) == 3


def test_a_table_that_is_renamed_and_then_altered_is_read_with_the_columns_of_then(lake_of: OPEN) -> None:
    """The database has only the last text of it; what the log says of tables is taken back from there."""
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x')")
    lake.check()
    lake.file.do("ALTER TABLE t RENAME TO s", "INSERT INTO s VALUES (2, 'y')", "ALTER TABLE s DROP COLUMN a")
    lake.file.do("INSERT INTO s VALUES (3)", "ALTER TABLE s ADD COLUMN b INT", "INSERT INTO s VALUES (4, 5)")
    lake.check()


def test_rows_of_a_writer_that_does_not_capture_are_counted_in_a_table_that_was_just_made(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x')")
    lake.check()
    lake.file.do("DROP TABLE t", T)
    _uncaptured(lake.file, "INSERT INTO t VALUES (9, 'unseen')")
    lake.file.do("INSERT INTO t VALUES (1, 'y')")
    lake.check()
    assert list(lake.stale) == ["main.t"]


def test_a_table_that_is_renamed_away_is_named_as_stale(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x')")
    lake.check()
    lake.file.do("ALTER TABLE t RENAME TO kept")
    lake.check()
    assert "main.t" in lake.stale
    assert lake.rows["main.kept"] == {(1,): {"id": 1, "a": "x"}}


def test_a_column_that_is_dropped_and_added_again_has_no_old_values(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'old')")
    lake.check()
    lake.file.do("ALTER TABLE t DROP COLUMN a", "ALTER TABLE t ADD COLUMN a TEXT")
    lake.check()
    assert lake.rows["main.t"] == {(1,): {"id": 1, "a": None}}
    lake.file.do("ALTER TABLE t DROP COLUMN a")
    lake.check()
    lake.restart()
    lake.file.do("ALTER TABLE t ADD COLUMN a TEXT", "INSERT INTO t VALUES (2, 'new')")
    lake.check()


def test_columns_that_are_renamed_or_swapped(lake_of: OPEN) -> None:
    lake = lake_of("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, b TEXT)", "INSERT INTO t VALUES (1, 'a', 'b')")
    lake.check()
    lake.file.do("ALTER TABLE t RENAME COLUMN a TO x", "ALTER TABLE t RENAME COLUMN b TO a")
    lake.file.do("ALTER TABLE t RENAME COLUMN x TO b", "INSERT INTO t VALUES (2, 'p', 'q')")
    lake.check()


def test_a_table_dropped_and_made_again(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    lake.check()
    lake.file.do("DROP TABLE t", T, "INSERT INTO t VALUES (2, 'new')")
    lake.check()
    lake.file.do("DROP TABLE t", "CREATE TABLE t (a TEXT PRIMARY KEY, n INT)", "INSERT INTO t VALUES ('k', 1)")
    lake.check()


def test_a_table_dropped_and_made_again_where_only_rows_after_are_captured(lake_of: OPEN) -> None:
    """The log of that mode does not say what was dropped."""
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x'), (2, 'y')", mode="after", capture="after")
    lake.check()
    lake.file.do("DROP TABLE t", T, "INSERT INTO t VALUES (2, 'new')")
    lake.check()


def test_names_in_capitals_are_the_same_table(new_file: NewFile) -> None:
    """The log has a table's name as each statement wrote it."""
    file = new_file()
    file.do(T)
    lake = Lake(file, tables=["main.t"])
    try:
        file.do("INSERT INTO T VALUES (1, 'x')", "INSERT INTO \"T\" VALUES (2, 'x')", "UPDATE T SET a = 'y'")
        lake.check()
        assert len(lake.rows["main.t"]) == 2
        file.do("ALTER TABLE T ADD COLUMN b INT", "INSERT INTO T VALUES (3, 'x', 1)", "DELETE FROM T WHERE id = 1")
        lake.check()
    finally:
        lake.close()


def test_odd_names(lake_of: OPEN) -> None:
    lake = lake_of('CREATE TABLE "we""ird.na me é" ("_gsn" INTEGER PRIMARY KEY, "a.b" TEXT, "a b" INT)')
    lake.file.do('INSERT INTO "we""ird.na me é" VALUES (1, \'x\', 3)')
    lake.follow()
    assert lake.rows['main.we"ird.na me é'] == {(1,): {"_gsn": 1, "a.b": "x", "a b": 3}}


# -- keys and rows -------------------------------------------------------------------------------------------


def test_keys_that_move(lake_of: OPEN) -> None:
    lake = lake_of(
        T, "CREATE TABLE k (a TEXT, b INT, c TEXT, PRIMARY KEY (a, b))", "INSERT INTO t VALUES (1, 'x'), (2, 'y')"
    )
    lake.file.do(
        "UPDATE t SET id = id + 10", "UPDATE t SET id = -id", "INSERT INTO k VALUES ('a', 1, 'x'), ('a', 2, 'y')"
    )
    lake.file.do("BEGIN", "UPDATE t SET id = 99 WHERE id = -11", "UPDATE t SET id = -11 WHERE id = -12")
    lake.file.do("UPDATE t SET id = -12 WHERE id = 99", "COMMIT", "UPDATE k SET b = 10 - b")
    lake.check()


def test_rows_that_a_statement_pushes_out(lake_of: OPEN) -> None:
    """REPLACE is in the log; what UPDATE OR REPLACE pushes out is not, and is found by counting."""
    lake = lake_of("CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT UNIQUE)")
    lake.file.do("INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')", "REPLACE INTO t VALUES (1, 'b')")
    lake.check()
    assert not lake.stale
    lake.file.do("UPDATE OR REPLACE t SET b = 'd' WHERE id = 3")
    lake.check()
    assert list(lake.stale) == ["main.t"]


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL", "SET DEFAULT"])
def test_foreign_keys_with_every_action(lake_of: OPEN, action: str) -> None:
    lake = lake_of(
        "PRAGMA foreign_keys = ON", "CREATE TABLE p (id INTEGER PRIMARY KEY)",
        "INSERT INTO p VALUES (1), (2), (3), (7)",
        "CREATE TABLE c (id INTEGER PRIMARY KEY, p INT DEFAULT 7 REFERENCES p (id) "
        f"ON DELETE {action} ON UPDATE {action})",
        "INSERT INTO c VALUES (1, 1), (2, 2), (3, 3), (4, 1)",
    )  # fmt: skip
    lake.file.do("UPDATE p SET id = 11 WHERE id = 1", "DELETE FROM p WHERE id = 2", "REPLACE INTO p VALUES (3)")
    lake.check()
    assert not lake.stale
    lake.file.do("DELETE FROM c", "DROP TABLE p")
    lake.check()


def test_the_rest_of_what_a_transaction_can_do(lake_of: OPEN) -> None:
    lake = lake_of(
        T, U, "CREATE TABLE g (id INTEGER PRIMARY KEY AUTOINCREMENT, a INT)",
        "CREATE TRIGGER tr AFTER DELETE ON t BEGIN INSERT INTO u VALUES (OLD.id, OLD.a); END",
    )  # fmt: skip
    lake.file.do("INSERT INTO t VALUES (1, 'x'), (2, NULL), (9223372036854775807, ''), (-9223372036854775808, 'm')")
    lake.file.do("INSERT INTO g (a) VALUES (1), (2)", "DELETE FROM g", "INSERT INTO g (a) VALUES (3)")
    lake.file.do("BEGIN", "DELETE FROM t WHERE id = 1", "SAVEPOINT s", "DELETE FROM t", "ROLLBACK TO s", "RELEASE s")
    lake.file.do("COMMIT", "DELETE FROM t WHERE id = 2", "INSERT INTO t VALUES (1, 'again')")
    lake.check()
    lake.file.do("DELETE FROM u", "DELETE FROM t", "DELETE FROM u")
    lake.check()
    assert not lake.stale


# -- what is in no log ---------------------------------------------------------------------------------------


def test_rows_of_a_writer_that_does_not_capture_are_counted_and_the_table_copied_again(lake_of: OPEN) -> None:
    lake = lake_of(T, U, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    lake.check()
    _uncaptured(lake.file, "INSERT INTO t VALUES (3, 'unseen')")
    lake.check()
    assert list(lake.stale) == ["main.t"]
    _uncaptured(lake.file, "DELETE FROM t WHERE id < 3")
    lake.check()
    lake.file.do("INSERT INTO t VALUES (5, 'seen')", "DELETE FROM t WHERE id = 3")
    copies = len(lake.copied)
    lake.check()
    assert len(lake.copied) == copies
    lake.restart()
    lake.check()
    assert len(lake.copied) == copies


def test_rows_of_a_writer_that_does_not_capture_are_counted_from_the_start_of_capture_on(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x')")
    _uncaptured(lake.file, "INSERT INTO t VALUES (3, 'unseen')")
    lake.check()
    assert list(lake.stale) == ["main.t"]


def test_rows_of_a_writer_that_does_not_capture_are_counted_also_if_nobody_read_meanwhile(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x')")
    lake.check()
    lake.file.do("INSERT INTO t VALUES (2, 'x')")
    _uncaptured(lake.file, "INSERT INTO t VALUES (3, 'unseen')")
    lake.restart()
    lake.check()
    assert list(lake.stale) == ["main.t"]


@pytest.mark.parametrize(
    "deed",
    [["ALTER TABLE t ADD COLUMN b INT DEFAULT 3"], ["DROP TABLE t"], ["DROP TABLE t", T], ["ALTER TABLE t RENAME TO n"],
     ["DROP TABLE t", U.replace("u (", "t ("), "INSERT INTO t VALUES (7, 'z')"]],
    ids=["add", "drop", "made again", "rename", "made again with rows"],
)  # fmt: skip
def test_what_a_connection_that_does_not_capture_does_to_a_table(lake_of: OPEN, deed: list[str]) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x'), (2, 'y')")
    lake.check()
    _uncaptured(lake.file, *deed)
    lake.check()
    assert "main.t" in lake.stale


def test_a_table_made_by_a_select_has_its_rows(lake_of: OPEN) -> None:
    lake = lake_of(T, "INSERT INTO t VALUES (1, 'x'), (2, 'y')", without_key="rowid")
    lake.file.do("CREATE TABLE c AS SELECT * FROM t")
    lake.check()
    assert len(lake.rows["main.c"]) == 2


def test_a_connection_with_another_file_attached_may_not_capture(new_file: NewFile, tmp_path: Path) -> None:
    """Turso logs changes of the other file's tables as if they were of this one."""
    file = new_file(mode="", features="attach")
    file.do(f"ATTACH '{tmp_path / 'other.db'}' AS other")
    with pytest.raises(StartRefusedError, match="other files are attached: other"):
        capture(file.connection)


def test_changes_of_an_attached_file_are_found_by_counting(new_file: NewFile, tmp_path: Path) -> None:
    file = new_file(features="attach")
    file.do(T, "INSERT INTO t VALUES (1, 'x')")
    lake = Lake(file)
    try:
        lake.check()
        file.do(f"ATTACH '{tmp_path / 'other.db'}' AS other", "CREATE TABLE other.t (id INTEGER PRIMARY KEY, a TEXT)")
        # Turso commits the line in the log together with the next statement
        file.do("INSERT INTO other.t VALUES (2, 'of another file')", "INSERT INTO main.t VALUES (3, 'x')")
        lake.check()
        assert "main.t" in lake.stale
    finally:
        lake.close()


# -- another file, another log -------------------------------------------------------------------------------


def _backup(file: TursoFile, to: Path) -> None:
    file.do("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copyfile(file.path, to)


def _restore(file: TursoFile, backup: Path) -> None:
    file.close()
    for suffix in ("-wal", "-tshm", "-shm"):
        Path(f"{file.path}{suffix}").unlink(missing_ok=True)
    shutil.copyfile(backup, f"{file.path}.new")
    Path(f"{file.path}.new").replace(file.path)


@pytest.mark.parametrize("writes", [0, 1, 2], ids=["fewer changes", "as many changes", "more changes"])
def test_a_file_restored_from_an_older_copy_is_not_read_on(
    new_file: NewFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Also if all of it happens in one second, which is all that the log has of time."""
    monkeypatch.setattr(stream, "DOUBT_SECONDS", 0.1)
    file = new_file()
    file.do(T, "INSERT INTO t VALUES (1, 'x')")
    _backup(file, tmp_path / "backup.db")
    reading = Captured(file.source())
    source = reading.source
    before = source.incarnation()
    file.do("INSERT INTO t VALUES (2, 'before')")
    marks = reading.drain().polls[-1].marks
    encoders = reading.encoders
    reading.stream.close()
    del reading
    _restore(file, tmp_path / "backup.db")
    gc.collect()
    again = new_file()
    for number in range(writes):
        again.do(f"INSERT INTO t VALUES ({7 + number}, 'after')")
    again.do("PRAGMA capture_data_changes_conn('off')")
    last = again.ask("SELECT max(change_id) FROM turso_cdc")[0][0]
    if writes:
        at = marks[1].resume
        time_, txn = (int(part.split(b": ")[1].rstrip(b"}")) for part in at.split(b", ")[1:3])
        _uncaptured(again, f"UPDATE turso_cdc SET change_time = {time_}, change_txn_id = {txn} WHERE change_id >= 5")
        assert last >= marks[1].order.major
    with pytest.raises((LogGapError, IncarnationError)) as refused:  # noqa: PT012
        found = source.stream({1: marks[1].resume}, {1: marks[1].order}, encoders)
        try:
            for _ in range(100):
                found.poll(frozenset())
        finally:
            found.close()
    assert "begins again" in (refused.value.hint or "")
    assert source.incarnation() != before, "who compares identities sees it, too"


def test_another_file_that_takes_the_name_while_it_is_read_is_noticed(new_file: NewFile, tmp_path: Path) -> None:
    file = new_file()
    file.do(T)
    _backup(file, tmp_path / "backup.db")
    reading = Captured(file.source())
    file.do("INSERT INTO t VALUES (1, 'x')")
    reading.drain()
    _restore(file, tmp_path / "backup.db")
    reading.stream._checked_at = 0.0  # type: ignore[attr-defined]
    with pytest.raises(SourceLostError, match="the path is another file now"):
        reading.poll()
    reading.stream.close()


def test_a_new_file_is_another_incarnation(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    before = file.source().incarnation()
    file.close()
    for path in file.path.parent.iterdir():
        path.unlink()
    gc.collect()
    again = new_file()
    again.do(T)
    assert again.source().incarnation() != before


@pytest.mark.parametrize(
    "deed",
    [["DROP TABLE turso_cdc"], ["ALTER TABLE turso_cdc RENAME TO old"],
     ["DROP TABLE turso_cdc", "PRAGMA capture_data_changes_conn('full')", "INSERT INTO t VALUES (9, 'x')"]],
    ids=["dropped", "renamed", "made again"],
)  # fmt: skip
def test_a_table_of_changes_that_is_no_more_stops_the_source_by_name(
    new_file: NewFile, monkeypatch: pytest.MonkeyPatch, deed: list[str]
) -> None:
    monkeypatch.setattr(stream, "DOUBT_SECONDS", 0.1)
    file = new_file()
    file.do(T, "INSERT INTO t VALUES (1, 'x')")
    reading = Captured(file.source())
    file.do("INSERT INTO t VALUES (2, 'x')")
    reading.drain()
    before = reading.source.incarnation()
    file.do("PRAGMA capture_data_changes_conn('off')", *deed)
    with pytest.raises(LogGapError) as refused:
        reading.drain()
    assert (refused.value.source, refused.value.thread) == ("file", 1)
    assert refused.value.position
    assert "begins again" in (refused.value.hint or "")
    reading.stream.close()
    try:
        assert reading.source.incarnation() != before
    except LowwaterError as error:
        assert "no writer captures" in error.what  # noqa: PT017
