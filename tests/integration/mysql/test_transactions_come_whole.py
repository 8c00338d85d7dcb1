"""What a transaction is, whatever it is made of: savepoints, DDL, XA, large ones, parts of rows, other formats."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
from tests.integration.mysql.reading import Read, reading
from tests.support.mysql import MARIADBS, MYSQLS, MysqlDatabase, connect, run

from lowwater.errors import LogGapError, LogUnknownError, SourceLostError, StartRefusedError
from lowwater.records.positions import Order
from lowwater_extractor.sources.mysql.position import Resume

_ONLY_MYSQL = pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
_ONLY_MARIADB = pytest.mark.parametrize("mysql_server", MARIADBS, indirect=True)


def _ids(read: Read) -> list[list[Any]]:
    """Of each transaction: op and the row's id."""
    return [[(c.op, (c.after or c.before or {}).get("id")) for c in changes] for changes in read.new()]


@pytest.fixture
def items(mysql_database: MysqlDatabase) -> MysqlDatabase:
    mysql_database.execute("CREATE TABLE items (id int PRIMARY KEY, name varchar(40), n int)")
    return mysql_database


def test_what_is_rolled_back_to_a_savepoint_never_comes_and_the_rest_comes_whole(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute(
            "BEGIN", "INSERT INTO items VALUES (1, 'a', 1)", "SAVEPOINT one", "INSERT INTO items VALUES (2, 'b', 2)",
            "ROLLBACK TO one", "INSERT INTO items VALUES (3, 'c', 3)", "COMMIT", "BEGIN",
            "INSERT INTO items VALUES (4, 'd', 4)", "ROLLBACK",
        )  # fmt: skip
        assert _ids(read) == [[("c", 1), ("c", 3)]]


def test_a_statement_that_commits_ends_the_transaction_before_it(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute(
            "BEGIN", "INSERT INTO items VALUES (1, 'a', 1)", "CREATE TABLE other (id int PRIMARY KEY)",
            "INSERT INTO items VALUES (2, 'b', 2)", "INSERT INTO other VALUES (7)",
        )  # fmt: skip
        assert _ids(read) == [[("c", 1)], [("c", 2)], [("c", 7)]]


def test_an_altered_table_is_a_new_version_from_its_next_row_on(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute(
            "INSERT INTO items VALUES (1, 'a', 1)",
            "ALTER TABLE items ADD COLUMN note text",
            "INSERT INTO items VALUES (2, 'b', 2, 'x')",
            "ALTER TABLE items CHANGE n m int",
            "ALTER TABLE items DROP COLUMN name",
            "INSERT INTO items VALUES (3, 3, 'y')",
            "RENAME TABLE items TO things",
            "INSERT INTO things VALUES (4, 4, 'z')",
        )
        found = [change for changes in read.new() for change in changes]
        assert [(c.op, c.table, c.version) for c in found] == [
            ("c", "items", 1), ("c", "items", 2), ("c", "items", 3), ("t", "items", 3), ("c", "things", 1)
        ]  # fmt: skip
        assert found[2].after == {"id": 3, "m": 3, "note": "y"}


def test_truncate_is_a_change(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute(
            "INSERT INTO items VALUES (1, 'a', 1)", "TRUNCATE TABLE items", "INSERT INTO items VALUES (1, 'b', 1)",
            f"TRUNCATE `{items.name}` . `items`",
        )  # fmt: skip
        assert [[c.op for c in changes] for changes in read.new()] == [["c"], ["t"], ["c"], ["t"]]


def test_a_transaction_beyond_memory_comes_whole_from_disk(items: MysqlDatabase, tmp_path: Path) -> None:
    with reading(items, spill_bytes_max=20_000, spill_directory=str(tmp_path)) as read, items.connect() as connection:
        run(connection, "BEGIN")
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO items VALUES (%s, %s, %s)", [(n, f"item {n}", n) for n in range(5_000)])
        run(connection, "UPDATE items SET n = n + 1")
        run(connection, "COMMIT")
        (changes,) = read.new()
    assert [c.after["n"] for c in changes if c.after] == [*range(5_000), *range(1, 5_001)]


def test_tables_without_transactions_and_created_from_others_come_too(items: MysqlDatabase) -> None:
    with reading(items, without_key="stream_only") as read:
        items.execute("CREATE TABLE plain (id int PRIMARY KEY) ENGINE=MyISAM", "INSERT INTO plain VALUES (5)")
        if items.is_mariadb:
            items.execute("INSERT INTO items VALUES (1, 'a', 1)", "CREATE TABLE made AS SELECT * FROM items")
            assert _ids(read) == [[("c", 5)], [("c", 1)], [("c", 1)]]
        else:
            assert _ids(read) == [[("c", 5)]]


# -- parts of rows -----------------------------------------------------------------------------------------


def test_with_minimal_rows_what_the_log_lacks_is_named_as_unchanged(items: MysqlDatabase) -> None:
    with reading(items, copy_tables=False) as read:
        items.execute(
            "SET SESSION binlog_row_image = 'MINIMAL'", "INSERT INTO items VALUES (1, 'a', 1)",
            "UPDATE items SET n = 2 WHERE id = 1", "UPDATE items SET id = 9 WHERE id = 1",
            "DELETE FROM items WHERE id = 9", "INSERT INTO items (id) VALUES (2)",
        )  # fmt: skip
        insert, update, moved, delete, bare = (changes[0] for changes in read.new())
    assert insert.after == {"id": 1, "name": "a", "n": 1}
    assert update.before == {"id": 1, "name": None, "n": None}
    assert (update.after, update.unchanged) == ({"id": 1, "name": None, "n": 2}, ["name"])
    assert (moved.before or {})["id"] == 1
    assert (moved.after, moved.unchanged) == ({"id": 9, "name": None, "n": None}, ["name", "n"])
    assert delete.before == {"id": 9, "name": None, "n": None}
    assert bare.after == {"id": 2, "name": None, "n": None}


def test_a_default_that_the_log_lacks_stops_the_source(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE filled (id int PRIMARY KEY, state varchar(9) NOT NULL DEFAULT 'new')")
    with reading(mysql_database) as read:
        mysql_database.execute("SET SESSION binlog_row_image = 'MINIMAL'", "INSERT INTO filled (id) VALUES (1)")
        with pytest.raises(LogUnknownError, match="without state"):
            read.new()


def test_without_names_in_the_log_they_come_from_the_catalogue_or_the_source_stops(items: MysqlDatabase) -> None:
    run_as = "SET GLOBAL binlog_row_metadata = {}"
    try:
        items.execute(run_as.format("MINIMAL" if not items.is_mariadb else "NO_LOG"))
        items.execute("CREATE TABLE labelled (id int unsigned PRIMARY KEY, e enum('x','y'), s set('p','q'), t text)")
        with reading(items, server_id=21) as read:
            items.execute("INSERT INTO labelled VALUES (4000000000, 'y', 'p,q', 'é')")
            # without any metadata a sign is not in the log either: it is the catalogue's
            assert read.one()[0].after == {"id": 4000000000, "e": "y", "s": ["p", "q"], "t": "é"}
            assert read.mark is not None
            resumes = read.resumes
        items.execute("INSERT INTO items VALUES (1, 'a', 1)", "ALTER TABLE items DROP COLUMN n")
        with (
            reading(items, resumes, server_id=21) as again,
            pytest.raises(LogUnknownError, match="columns now") as wrong,
        ):
            again.new()
        assert "binlog_row_metadata" in str(wrong.value.hint)
    finally:
        items.execute(run_as.format("FULL"))


# -- XA ----------------------------------------------------------------------------------------------------


def _xa(database: MysqlDatabase, name: str, row: str, *, ends: str = "") -> None:
    statements = [f"XA START '{name}'", f"INSERT INTO items VALUES {row}", f"XA END '{name}'", f"XA PREPARE '{name}'"]
    database.execute(*statements, *([f"XA {ends} '{name}'"] if ends else []))


def _commit_without_log(items: MysqlDatabase, xid: str) -> None:
    with connect(items.server) as other:
        if items.is_mariadb:
            with pytest.raises(pymysql.Error):
                run(other, f"XA COMMIT '{xid}' ONE PHASE")
            run(other, "SET sql_log_bin = 0")
            run(other, f"XA COMMIT '{xid}'")
        else:
            run(other, f"XA COMMIT '{xid}' ONE PHASE")


def test_tables_of_an_xa_transaction_that_was_ended_without_the_log_are_stale_before_later_transactions(
    items: MysqlDatabase,
) -> None:
    with reading(items) as read:
        _xa(items, "quiet", "(7, 'g', 7)")
        assert read.new() == []
        _xa(items, "other", "(9, 'i', 9)")
        _commit_without_log(items, "quiet")
        items.execute("XA ROLLBACK 'other'", "INSERT INTO items VALUES (8, 'h', 8)")
        deadline = time.monotonic() + 30
        while not (found := read.poll()):
            assert time.monotonic() < deadline, "nothing has come"
            assert f"{items.name}.items" not in read.stale
            time.sleep(0.01)
        assert [transaction.count for transaction in found] == [1]
        assert "XA" in read.reason(f"{items.name}.items")


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_table_that_is_made_again_while_an_xa_transaction_of_it_is_prepared_is_stale(items: MysqlDatabase) -> None:
    """MySQL 8.0.12 drops it, and its log has the old table's rows after that."""
    with reading(items) as read:
        _xa(items, "old", "(7, 'g', 7)")
        assert read.new() == []
        try:
            items.execute("SET lock_wait_timeout = 1", "DROP TABLE items")
        except pymysql.Error as error:
            items.execute("XA ROLLBACK 'old'")
            pytest.skip(f"this server keeps the table for the prepared transaction: {error.args[-1]}")
        items.execute("CREATE TABLE items (id int PRIMARY KEY, name varchar(40), n int)", "XA COMMIT 'old'")
        read.new()
        assert "XA transaction" in read.reason(f"{items.name}.items")


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_table_under_its_new_name_is_stale_if_an_xa_transaction_was_prepared_before_the_rename(
    items: MysqlDatabase,
) -> None:
    """MySQL 8.0.12 renames it: the rows come into the table under its new name, the log has them under the old one."""
    items.execute("CREATE TABLE other (id int PRIMARY KEY, name varchar(40), n int)")
    with reading(items) as read:
        _xa(items, "moved", "(7, 'g', 7)")
        assert read.new() == []
        try:
            items.execute("SET lock_wait_timeout = 1", "RENAME TABLE items TO gone, other TO items, gone TO other")
        except pymysql.Error as error:
            items.execute("XA ROLLBACK 'moved'")
            pytest.skip(f"this server keeps the table for the prepared transaction: {error.args[-1]}")
        read.new()
        items.execute("XA COMMIT 'moved'")
        read.new()
        assert "XA transaction" in read.reason(f"{items.name}.other")
        assert "XA transaction" in read.reason(f"{items.name}.items")


def _prepared(database: MysqlDatabase, *statements: str) -> None:
    database.execute("XA START 'held'", *statements, "XA END 'held'", "XA PREPARE 'held'")


def _orders_at_rename_and_commit(read: Read, database: MysqlDatabase, rename: str, table: str) -> tuple[Order, Order]:
    """From when on it is stale, after a rename while a transaction is prepared, and after its XA COMMIT."""
    read.new()
    try:
        database.execute("SET lock_wait_timeout = 1", rename)
    except pymysql.Error as error:
        database.execute("XA ROLLBACK 'held'")
        pytest.skip(f"this server keeps the table for the prepared transaction: {error.args[-1]}")
    read.new()
    then = read.stale[f"{database.name}.{table}"]
    database.execute("XA COMMIT 'held'")
    read.new()
    return then, read.stale[f"{database.name}.{table}"]


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_table_that_is_renamed_into_capture_while_an_xa_transaction_of_it_is_prepared_is_stale_at_its_commit(
    mysql_database: MysqlDatabase,
) -> None:
    other = MysqlDatabase(mysql_database.server)
    try:
        other.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
        with reading(mysql_database) as read:
            _prepared(other, "INSERT INTO t VALUES (7)")
            rename = f"RENAME TABLE `{other.name}`.t TO `{mysql_database.name}`.t"
            then, later = _orders_at_rename_and_commit(read, mysql_database, rename, "t")
            assert later > then
    finally:
        other.drop()


@pytest.mark.parametrize("mysql_server", ["mysql-8.0"], indirect=True)
def test_child_that_is_renamed_while_a_delete_of_its_parent_is_prepared_is_stale_at_its_commit(
    mysql_database: MysqlDatabase,
) -> None:
    mysql_database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (7, 1)",
    )
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        _prepared(mysql_database, "DELETE FROM parent")
        then, later = _orders_at_rename_and_commit(read, mysql_database, "RENAME TABLE child TO child2", "child2")
        assert later > then


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_table_whose_name_ends_with_a_dot_is_no_database(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE `t.` (id int PRIMARY KEY)")
    with reading(mysql_database) as read:
        _prepared(mysql_database, "INSERT INTO `t.` VALUES (7)")
        then, later = _orders_at_rename_and_commit(read, mysql_database, "RENAME TABLE `t.` TO u", "u")
        assert later > then


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_tables_of_an_xa_transaction_are_stale_if_its_xid_is_prepared_again(items: MysqlDatabase) -> None:
    """It was ended without the log. The server lists the xid as prepared, so the list does not show that."""
    items.execute("CREATE TABLE second (id int PRIMARY KEY)")
    with reading(items) as read:
        _xa(items, "again", "(7, 'g', 7)")
        assert read.new() == []
        _commit_without_log(items, "again")
        items.execute("XA START 'again'", "INSERT INTO second VALUES (8)", "XA END 'again'", "XA PREPARE 'again'")
        items.execute("XA COMMIT 'again'")
        assert [[change.table for change in changes] for changes in read.new()] == [["second"]]
        assert "XA" in read.reason(f"{items.name}.items")


def test_xa_transaction_that_is_ended_without_the_log_makes_its_tables_stale(items: MysqlDatabase) -> None:
    """MySQL commits what another session has prepared by ONE PHASE, and writes nothing; MariaDB refuses that."""
    with reading(items) as read:
        _xa(items, "quiet", "(7, 'g', 7)")
        assert read.new() == []
        _commit_without_log(items, "quiet")
        deadline = time.monotonic() + 30
        while f"{items.name}.items" not in read.stale:
            assert time.monotonic() < deadline, "its table is not stale"
            assert not read.poll()
            read.stream.acknowledge(read.resumes)
            time.sleep(0.01)
        assert "XA" in read.reason(f"{items.name}.items")


def test_xa_comes_at_its_commit_also_after_a_restart_in_between(items: MysqlDatabase) -> None:
    with reading(items) as read:
        _xa(items, "kept", "(1, 'a', 1), (2, 'b', 2)")
        _xa(items, "undone", "(3, 'c', 3)")
        items.execute("INSERT INTO items VALUES (4, 'd', 4)")
        assert _ids(read) == [[("c", 4)]]
        resumes = read.resumes
        assert len(Resume.unpack(resumes[1]).xa) == 2
    with reading(items, resumes) as again:
        items.execute("XA ROLLBACK 'undone'", "INSERT INTO items VALUES (5, 'e', 5)")
        assert _ids(again) == [[("c", 5)]]
        resumes = again.resumes
        assert len(Resume.unpack(resumes[1]).xa) == 1
    with reading(items, resumes) as last:
        items.execute("XA COMMIT 'kept'")
        _xa(items, "quick", "(6, 'f', 6)", ends="COMMIT")
        assert _ids(last) == [[("c", 1), ("c", 2)], [("c", 6)]]
        orders = [t.order for t in last.found]
        assert orders == sorted(orders)
        assert Resume.unpack(last.resumes[1]).back is None


def test_capture_waits_for_xa_that_was_prepared_before_it_or_leaves_it_out_by_name(items: MysqlDatabase) -> None:
    _xa(items, "early", "(1, 'a', 1)")
    try:
        with pytest.raises(SourceLostError, match="prepared XA transactions"), reading(items):
            pass
        with reading(items, xa_at_start="leave_out") as read:
            items.execute("XA COMMIT 'early'", "INSERT INTO items VALUES (2, 'b', 2)")
            assert _ids(read) == [[("c", 2)]]
            assert "prepared before capture began" in read.left_out[0][2]
    finally:
        items.execute("DELETE FROM items")


# -- what cannot be read -----------------------------------------------------------------------------------


def test_changes_by_statements_stop_the_source(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute("SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO items VALUES (1, 'a', 1)")
        with pytest.raises(LogUnknownError, match="by a statement, not by their rows") as refused:
            read.new()
        assert "binlog_format" in str(refused.value.hint)
        assert refused.value.position


@_ONLY_MYSQL
def test_parts_of_json_documents_stop_the_source(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE docs (id int PRIMARY KEY, doc json)")
    with reading(mysql_database) as read:
        mysql_database.execute(
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", "INSERT INTO docs VALUES (1, '{\"a\": 1}')",
            "UPDATE docs SET doc = JSON_SET(doc, '$.a', 2)",
        )  # fmt: skip
        with pytest.raises(LogUnknownError, match="parts of JSON") as refused:
            read.new()
        assert "binlog_row_value_options" in str(refused.value.hint)


@_ONLY_MARIADB
def test_compressed_events_of_mariadb_are_read(items: MysqlDatabase) -> None:
    try:
        items.execute("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress_min_len = 10")
        with reading(items) as read:
            items.execute(
                f"INSERT INTO items VALUES (1, '{'a' * 40}', 1), (2, '{'b' * 40}', 2)", "UPDATE items SET n = 7",
                f"CREATE TABLE more (id int PRIMARY KEY, {', '.join(f'column{n} int' for n in range(20))})",
                "DELETE FROM items",
            )  # fmt: skip
            assert _ids(read) == [[("c", 1), ("c", 2)], [("u", 1), ("u", 2)], [("d", 1), ("d", 2)]]
    finally:
        items.execute("SET GLOBAL log_bin_compress = OFF")


def test_new_table_without_a_key_is_left_out_and_one_that_loses_it_stops(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute("CREATE TABLE new_keyless (a int)", "INSERT INTO new_keyless VALUES (1)")
        items.execute("TRUNCATE new_keyless", "INSERT INTO new_keyless VALUES (2)")
        items.execute("CREATE TABLE keyed (a int PRIMARY KEY)", "INSERT INTO keyed VALUES (1)")
        assert [change.table for changes in read.new() for change in changes] == ["keyed"]
        items.execute("ALTER TABLE keyed DROP PRIMARY KEY", "INSERT INTO keyed VALUES (1)")
        with pytest.raises(LogUnknownError, match="keyed has lost its primary key"):
            read.new()


@pytest.mark.parametrize("first", ["TRUNCATE report", "DROP TABLE report"])
def test_table_that_had_no_key_for_a_time_is_stale_and_does_not_stop_the_source(
    items: MysqlDatabase, first: str
) -> None:
    """The script has ended when it is read: the catalogue has a key, and the log has rows without one."""
    with reading(items) as read:
        items.execute("CREATE TABLE report (id int, n int)")
        read.new()
        items.execute(first, "CREATE TABLE IF NOT EXISTS report (id int, n int)", "INSERT INTO report VALUES (1, 1)")
        items.execute("INSERT INTO report VALUES (2, 2)", "ALTER TABLE report ADD PRIMARY KEY (id)")
        items.execute("INSERT INTO report VALUES (3, 3)")
        assert [c.after for changes in read.new() for c in changes if c.after] == [{"id": 3, "n": 3}]
        assert f"{items.name}.report" in read.stale


def test_tables_that_cannot_be_captured_are_refused_by_name(items: MysqlDatabase) -> None:
    items.execute("CREATE TABLE keyless (a int)")
    with pytest.raises(StartRefusedError, match=rf"{items.name}\.keyless"), reading(items):
        pass
    with reading(items, without_key="stream_only") as read:
        items.execute("INSERT INTO keyless VALUES (1)", "UPDATE keyless SET a = 2", "DELETE FROM keyless")
        changes = [changes[0] for changes in read.new()]
        assert [(c.op, c.before, c.after) for c in changes] == [
            ("c", None, {"a": 1}), ("u", {"a": 1}, {"a": 2}), ("d", {"a": 2}, None)
        ]  # fmt: skip
        tables = [table.table for table in read.source.tables_to_copy()]
        assert "keyless" not in tables


def test_an_unknown_xa_commit_stops_the_source(items: MysqlDatabase) -> None:
    _xa(items, "gone", "(1, 'a', 1)")
    with reading(items, xa_at_start="leave_out") as read:
        resumes = read.resumes
    with reading(items, resumes) as again:
        items.execute("XA COMMIT 'gone'")
        with pytest.raises(LogGapError, match="before capture began"):
            again.new()


@pytest.mark.parametrize("mysql_server", ["mysql-9"], indirect=True)
def test_a_compressed_transaction_of_a_real_server_is_read(items: MysqlDatabase) -> None:
    with reading(items) as read:
        many = ", ".join(f"({n}, '{'a' * 40}', {n})" for n in range(5000))
        items.execute(
            "SET binlog_transaction_compression = ON",
            "BEGIN",
            f"INSERT INTO items VALUES {many}",
            "UPDATE items SET n = -1",
            "COMMIT",
        )
        ops = [change.op for change in read.one()]
        assert (ops.count("c"), ops.count("u")) == (5000, 5000)


@pytest.mark.parametrize("mysql_server", ["mysql-9"], indirect=True)
def test_gtids_with_a_tag_are_read_also_after_a_restart(items: MysqlDatabase) -> None:
    with reading(items) as read:
        items.execute(
            "INSERT INTO items VALUES (1, 'a', 1)",
            "SET gtid_next = 'AUTOMATIC:nightly'",
            "INSERT INTO items VALUES (2, 'b', 2)",
            "INSERT INTO items VALUES (3, 'c', 3)",
        )
        assert _ids(read) == [[("c", 1)], [("c", 2)], [("c", 3)]]
        assert [":nightly:" in t.txid for t in read.found] == [False, True, True]
        resumes = read.resumes
    items.execute("SET gtid_next = 'AUTOMATIC:nightly'", "INSERT INTO items VALUES (4, 'd', 4)")
    items.execute("INSERT INTO items VALUES (5, 'e', 5)")
    with reading(items, resumes) as again:
        assert _ids(again) == [[("c", 4)], [("c", 5)]]
    with reading(items) as anew:
        items.execute("INSERT INTO items VALUES (6, 'f', 6)")
        assert _ids(anew) == [[("c", 6)]]
