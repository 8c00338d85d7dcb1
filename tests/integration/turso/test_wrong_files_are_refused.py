"""Files that cannot be captured, and logs that somebody has been at: each is refused with what to do about it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.turso.conftest import NewFile
from tests.support.turso_file import Captured, TursoFile, captured

from lowwater.errors import (
    ConfigError,
    LogGapError,
    LogUnknownError,
    LowwaterError,
    SourceLostError,
    StartRefusedError,
)
from lowwater.turso import FEATURES, capture
from lowwater_extractor.sources import open_source
from lowwater_extractor.sources.turso import stream

turso = pytest.importorskip("turso", reason="pyturso is not there")

T = "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT)"
V1 = (
    "CREATE TABLE turso_cdc (change_id INTEGER PRIMARY KEY AUTOINCREMENT, change_time INTEGER, change_type INTEGER,"
    " table_name TEXT, id, before BLOB, after BLOB, updates BLOB)"
)


def _refused(file: TursoFile, error: type[LowwaterError], said: str, **settings: Any) -> str:
    with pytest.raises(error, match=said) as caught:
        Captured(file.source(**settings))
    assert caught.value.source == "file"
    assert caught.value.hint
    failed = [check for check in file.source(**settings).check() if not check.is_good]
    assert failed, "the doctor finds it, too"
    return caught.value.hint


def test_a_good_file_has_nothing_to_be_mended(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    assert [check.name for check in file.source().check() if check.is_good] == ["file", "capture", "tables"]


def test_a_file_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    source = open_source("file", "turso", {"path": str(tmp_path / "none.db"), "tables": ["main.*"]})
    with pytest.raises(SourceLostError, match="No such file"):
        source.incarnation()
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_which_nobody_captures(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T)
    assert "capture(connection)" in _refused(file, StartRefusedError, "there is no table turso_cdc")


def test_mvcc(tmp_path: Path) -> None:
    path = tmp_path / "m.db"
    connection = turso.connect(str(path), isolation_level=None)
    connection.execute("PRAGMA journal_mode = mvcc").fetchall()
    connection.execute(T).fetchall()
    source = open_source("file", "turso", {"path": str(path), "tables": ["main.*"]})
    with pytest.raises(StartRefusedError, match="MVCC"):
        source.incarnation()
    with pytest.raises(StartRefusedError, match="MVCC"):
        capture(connection)
    connection.close()


def _owner(path: Path, statement: str) -> subprocess.Popen[bytes]:
    """A process that opens the file as Turso does by itself."""
    script = f"c = turso.connect({str(path)!r}); c.execute({statement!r}); print(1, flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", f"import sys, turso; {script}"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_file_that_another_process_has_for_itself(tmp_path: Path) -> None:
    path = tmp_path / "own.db"
    process = _owner(path, T)
    try:
        source = open_source("file", "turso", {"path": str(path), "tables": ["main.*"]})
        with pytest.raises(SourceLostError, match=f"process {process.pid} has opened the file exclusively") as caught:
            source.incarnation()
        assert FEATURES in (caught.value.hint or "")
    finally:
        process.communicate()


def test_a_process_that_takes_the_file_for_itself_while_it_is_read(new_file: NewFile) -> None:
    """Turso lets it, and from then on neither sees what the other does."""
    file = new_file()
    reading = _read_some(file)
    file.close()
    process = _owner(file.path, "SELECT 1")
    try:
        with pytest.raises(SourceLostError, match="exclusively"):
            reading.poll()
    finally:
        process.communicate()
    reading.drain()
    reading.stream.close()


@pytest.mark.parametrize(
    ("sql", "settings", "said"),
    [
        ("CREATE TABLE w (a TEXT PRIMARY KEY) WITHOUT ROWID", {}, "WITHOUT ROWID"),
        ("CREATE TABLE w (a TEXT)", {}, "no primary key"),
        ("CREATE TABLE w (a TEXT PRIMARY KEY)", {"capture": "after"}, "does not contain the key"),
        (T, {"tables": ["main.none"]}, "no such table: main.none"),
    ],
)
def test_tables_that_cannot_be_captured(new_file: NewFile, sql: str, settings: dict[str, Any], said: str) -> None:
    file = new_file(features="without_rowid")
    file.do(sql)
    _refused(file, StartRefusedError, said, **settings)


# -- version 1 -------------------------------------------------------------------------------------------


def test_version_1_is_read_as_far_as_it_tells_transactions_apart(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(T, V1, "PRAGMA capture_data_changes_conn('full')")
    with captured(file) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')")
        reading.drain()
        file.do("UPDATE t SET a = 'y'")
        reading.drain()
        assert [(t.txid, len(t.changes)) for t in reading.contents()] == [("1", 1), ("2", 1)]
        file.do("INSERT INTO t VALUES (2, 'x')", "INSERT INTO t VALUES (3, 'x')")
        with pytest.raises(LogUnknownError, match="2 changes at once: turso_cdc is of version 1") as caught:
            reading.drain()
        assert "DROP TABLE" in (caught.value.hint or "")
    assert [check.name for check in file.source().check() if not check.is_good] == ["capture"]


def test_the_helper_for_writers_refuses_version_1_and_what_is_no_name(new_file: NewFile) -> None:
    file = new_file(mode="")
    file.do(V1)
    with pytest.raises(StartRefusedError, match="version v1"):
        capture(file.connection)
    assert file.ask("PRAGMA capture_data_changes_conn")[0][0] == "off"
    with pytest.raises(ConfigError):
        capture(file.connection, "everything")
    with pytest.raises(ConfigError):
        capture(file.connection, "full", "x'); DROP TABLE t; --")


# -- a log that somebody has been at -------------------------------------------------------------------------


ONE_OF_IT = "DELETE FROM turso_cdc WHERE change_id = (SELECT max(change_id) - 1 FROM turso_cdc)"


def _read_some(file: TursoFile) -> Captured:
    file.do(T)
    reading = Captured(file.source())
    file.do("INSERT INTO t VALUES (1, 'x')", "INSERT INTO t VALUES (2, 'x')")
    reading.drain()
    return reading


@pytest.mark.parametrize(
    ("deed", "said"),
    [
        (["DELETE FROM turso_cdc"], "which was read last, is gone"),
        (["DELETE FROM turso_cdc", "INSERT INTO t VALUES (8, 'x')", "INSERT INTO t VALUES (9, 'x')"], "is gone"),
        (["INSERT INTO t VALUES (8, 'x')", ONE_OF_IT],
         "is missing"),
        (["PRAGMA capture_data_changes_conn('off')", "UPDATE turso_cdc SET change_time = 1"], "is a different one"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_log_from_which_others_have_deleted(
    new_file: NewFile, monkeypatch: pytest.MonkeyPatch, deed: list[str], said: str, is_resumed: bool
) -> None:
    monkeypatch.setattr(stream, "DOUBT_SECONDS", 0.1)
    file = new_file()
    reading = _read_some(file)
    file.do(*deed)
    with pytest.raises(LogGapError, match=said) as caught:  # noqa: PT012
        if is_resumed:
            reading = reading.resumed()
        reading.drain()
    assert (caught.value.source, caught.value.thread) == ("file", 1)
    reading.stream.close()


def test_a_look_that_is_behind_is_not_believed(new_file: NewFile, tmp_path: Path) -> None:
    """Another process opens the file after a writer was killed: a connection may see what was there long before."""
    file = new_file()
    with captured(file) as reading:
        file.do(T, "PRAGMA wal_checkpoint(TRUNCATE)")
        older = tmp_path / "older.db"
        shutil.copyfile(file.path, older)
        file.do("INSERT INTO t VALUES (1, 'x')")
        reading.drain()
        database = reading.stream._database  # type: ignore[attr-defined]
        database.connection.close()
        database.connection = turso.connect(str(older), isolation_level=None)
        file.do("INSERT INTO t VALUES (2, 'x')")
        assert not reading.poll().marks[1].at_end
        assert reading.state() == {"main.t": {1: (1, "x"), 2: (2, "x")}}


def test_a_writer_that_ends_capture_in_the_middle_of_a_transaction(new_file: NewFile) -> None:
    file = new_file()
    reading = _read_some(file)
    file.do("BEGIN", "INSERT INTO t VALUES (3, 'x')", "PRAGMA capture_data_changes_conn('off')")
    file.do("INSERT INTO t VALUES (4, 'x')", "COMMIT")
    before = len(reading.transactions)
    assert len(reading.drain().transactions) == before, "rows without their COMMIT are not published"
    capture(file.connection)
    file.do("INSERT INTO t VALUES (5, 'x')")
    with pytest.raises(LogGapError, match="its COMMIT is missing"):
        reading.drain()
    reading.stream.close()


# -- pruning ---------------------------------------------------------------------------------------------


def test_what_is_durable_is_pruned_but_for_the_row_that_the_position_names(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file, prune=True, prune_seconds=0.001, audit_seconds=0) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')", "INSERT INTO t VALUES (2, 'x')")
        resume = reading.drain().polls[-1].marks[1].resume
        file.do("INSERT INTO t VALUES (3, 'x')")
        reading.stream.acknowledge({1: resume})
        kinds = [kind for (kind,) in file.ask("SELECT change_type FROM turso_cdc ORDER BY change_id")]
        assert kinds == [1, 2, 1, 2], "and the change before it"
        assert len(reading.changes()) == 3


def test_nothing_is_pruned_that_nobody_wants_pruned(new_file: NewFile) -> None:
    file = new_file()
    reading = _read_some(file)
    reading.stream.acknowledge({1: reading.polls[-1].marks[1].resume})
    assert file.ask("SELECT min(change_id) FROM turso_cdc") == [(1,)]
    reading.stream.close()


def test_pruning_waits_for_a_writer_that_holds_the_file(new_file: NewFile) -> None:
    file = new_file()
    file.do(T)
    with captured(file, prune=True, prune_seconds=0.001, audit_seconds=0, busy_seconds=0.05) as reading:
        file.do("INSERT INTO t VALUES (1, 'x')")
        resume = reading.drain().polls[-1].marks[1].resume
        file.do("BEGIN IMMEDIATE")
        reading.stream.acknowledge({1: resume})
        file.do("ROLLBACK")
        reading.stream.acknowledge({1: resume})
        assert file.ask("SELECT count(*) FROM turso_cdc") == [(2,)]
