"""What writers do to a real file, as it comes out of its log: every kind of statement, in every capture mode."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.conformance.kit import PastChange
from tests.integration.turso.conftest import NewFile
from tests.support.turso_file import TursoFile, captured

TABLES = (
    "CREATE TABLE t (id INTEGER PRIMARY KEY, b TEXT UNIQUE, c REAL)",
    "CREATE TABLE p (id INTEGER PRIMARY KEY, n INT)",
    "CREATE TABLE ch (id INTEGER PRIMARY KEY, p INT REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TRIGGER tr AFTER INSERT ON ch BEGIN UPDATE p SET n = n + 1 WHERE id = NEW.p; END",
    "PRAGMA foreign_keys = ON",
)
#: each a transaction, but for those that fail or are rolled back
WORK: tuple[tuple[str, ...], ...] = (
    ("INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', 2)",),
    ("UPDATE t SET c = 7 WHERE id = 1",),
    ("UPDATE t SET id = 10 WHERE id = 1",),
    ("INSERT INTO t VALUES (10, 'x', 3) ON CONFLICT (id) DO UPDATE SET c = 77, b = 'y'",),
    ("INSERT INTO t VALUES (10, 'x', 3) ON CONFLICT (id) DO UPDATE SET id = 11",),
    ("REPLACE INTO t VALUES (11, 'b', 9)",),
    ("UPDATE t SET b = 'z' WHERE id = 99",),
    ("BEGIN", "INSERT INTO t VALUES (3, 'c', 3)", "ROLLBACK"),
    ("BEGIN", "COMMIT"),
    ("BEGIN", "INSERT INTO t VALUES (4, 'd', 3)", "SAVEPOINT s", "INSERT INTO t VALUES (5, 'e', 3)", "ROLLBACK TO s",
     "RELEASE s", "DELETE FROM t WHERE id = 11", "COMMIT"),
    ("INSERT INTO p VALUES (1, 0), (2, 0)",),
    ("INSERT INTO ch VALUES (1, 1), (2, 1), (3, 2)",),
    ("UPDATE p SET id = 5 WHERE id = 1",),
    ("DELETE FROM p WHERE id = 5",),
    ("INSERT INTO t SELECT id + 100, 'i' || id, c FROM t",),
    ("DELETE FROM t WHERE id > 100",),
)  # fmt: skip


def _work(file: TursoFile) -> None:
    for statements in WORK:
        file.do(*statements)


@pytest.mark.parametrize("mode", ["full", "after"])
def test_the_changes_add_up_to_the_tables(new_file: NewFile, mode: str) -> None:
    file = new_file(mode)
    file.do(*TABLES)
    with captured(file, capture=mode) as reading:
        _work(file)
        state = reading.state()
    for table in ("t", "p", "ch"):
        assert sorted(state[f"main.{table}"].values()) == file.ask(f"SELECT * FROM {table} ORDER BY 1"), table


def test_each_statement_is_a_transaction_with_all_that_it_fires(new_file: NewFile) -> None:
    file = new_file()
    file.do(*TABLES)
    with captured(file) as reading:
        counts = []
        for statements in WORK:
            before = len(reading.transactions)
            file.do(*statements)
            reading.drain()
            counts.append([t.count for t in reading.transactions[before:]])
    assert counts == [[2], [1], [2], [1], [2], [3], [], [], [], [2], [2], [6], [4], [3], [1], [1]]


def test_a_failed_statement_leaves_nothing(new_file: NewFile) -> None:
    file = new_file()
    file.do(*TABLES, "INSERT INTO t VALUES (1, 'a', 1)")
    with captured(file) as reading:
        with pytest.raises(Exception, match="UNIQUE"):
            file.do("INSERT INTO t VALUES (2, 'b', 1), (3, 'a', 1)")
        assert reading.changes() == []


@pytest.mark.parametrize("mode", ["id", "before"])
def test_where_rows_are_not_captured_their_keys_are(new_file: NewFile, mode: str) -> None:
    file = new_file(mode)
    file.do(*TABLES)
    with captured(file, capture=mode, copy_tables=False) as reading:
        file.do("INSERT INTO t VALUES (7, 'a', 1)", "UPDATE t SET c = 2", "DELETE FROM t")
        assert reading.changes() == [
            PastChange("c", "main.t", None, (7,)),
            PastChange("u", "main.t", None, (7,)),
            PastChange("d", "main.t", (7,), None),
        ]


def test_a_table_without_a_key_goes_by_its_rowid(new_file: NewFile) -> None:
    file = new_file()
    file.do("CREATE TABLE n (a, b TEXT)")
    with captured(file, without_key="rowid") as reading:
        file.do(
            "INSERT INTO n VALUES (1, 'x'), (1, 'x')",
            "UPDATE n SET b = 'y' WHERE rowid = 2",
            "DELETE FROM n WHERE rowid = 1",
        )
        assert reading.state() == {"main.n": {2: (2, "1", "y")}}


def test_only_the_tables_that_are_named_are_captured(new_file: NewFile) -> None:
    file = new_file()
    file.do(*TABLES)
    with captured(file, tables=["main.p"]) as reading:
        _work(file)
        assert set(reading.state()) == {"main.p"}


_WRITER = """
import sys, turso, lowwater.turso
connection = turso.connect(sys.argv[1], isolation_level=None, experimental_features=lowwater.turso.FEATURES)
connection.execute("PRAGMA busy_timeout = 5000")
lowwater.turso.capture(connection)
number = connection.execute("SELECT coalesce(max(id), 0) FROM t").fetchall()[0][0]
while True:
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(1 + number % 7):
        number += 1
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", (number, str(number) + "x" * (number % 400), number / 2))
    connection.execute("UPDATE p SET n = n + 1")
    connection.execute("COMMIT")
"""


def test_writers_in_other_processes_are_killed_while_their_log_is_read(new_file: NewFile) -> None:
    """Over checkpoints, too: each transaction is whole, in its order, once."""
    file = new_file()
    file.do(*TABLES, "INSERT INTO p VALUES (1, 0)")
    with captured(file) as reading:
        for _ in range(4):
            with subprocess.Popen([sys.executable, "-c", _WRITER, str(file.path)]) as writer:
                try:
                    until = time.monotonic() + 1.2
                    while time.monotonic() < until:
                        reading.poll()
                        time.sleep(0.002)
                finally:
                    writer.kill()
        found = reading.drain().contents()
        state = reading.state()
    assert sorted(state["main.t"].values()) == file.ask("SELECT * FROM t ORDER BY id")
    ((n,),) = file.ask("SELECT n FROM p")
    updates = [change.after[1] for t in found for change in t.changes if change.op == "u" and change.after]
    assert updates == list(range(1, n + 1))
    # two transactions that are found together may be handed over as one: Turso gives both the same id at times
    assert sum(t.changes[-1].table == "main.p" for t in found) == len(found) > 0.9 * n
    assert Path(f"{file.path}-wal").exists()
