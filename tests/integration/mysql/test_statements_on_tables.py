"""Statements on captured tables, on real servers: the table is emptied, or named stale, or the source stops."""

from __future__ import annotations

import pymysql
import pytest
from tests.integration.mysql.reading import Read, reading
from tests.support.mysql import MARIADBS, MYSQLS, NEWEST_FIRST, MysqlDatabase, NewMysql, run

from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater_devkit.servers.mysql_install import Flavour

_ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, n int)"
_PARTED = (
    "CREATE TABLE parted (id int PRIMARY KEY, n int) PARTITION BY RANGE (id) "
    "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
)
_ONLY_MARIADB = pytest.mark.parametrize("mysql_server", MARIADBS, indirect=True)
_ONLY_MYSQL = pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)


def _ops(read: Read) -> list[tuple[str, str]]:
    return [(change.op, change.table) for changes in read.new() for change in changes]


def _state(read: Read) -> dict[str, dict[int, object]]:
    """Tables as a reader of the changes would have them."""
    found: dict[str, dict[int, object]] = {}
    for changes in read.new():
        for change in changes:
            rows = found.setdefault(change.table, {})
            if change.op == "t":
                rows.clear()
            if change.before:
                rows.pop(change.before["id"], None)
            if change.after:
                rows[change.after["id"]] = change.after
    return found


def test_truncate_with_comment_empties_the_table(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS)
    statements = [
        "TRUNCATE TABLE /* nightly */ orders",
        "TRUNCATE orders/*x*/",
        "/*!50001 TRUNCATE TABLE orders */",
        "TRUNCATE /*!99999 no such */ orders",
        "truncate -- x\n table # y\n `orders`;",
        f"TRUNCATE {mysql_database.name} . /**/ orders",
    ]
    with reading(mysql_database) as read:
        for statement in statements:
            mysql_database.execute("INSERT INTO orders VALUES (1, 1)", statement)
        assert _ops(read) == [("c", "orders"), ("t", "orders")] * len(statements)


def test_truncate_with_ansi_quotes_empties_the_table(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS, 'CREATE TABLE `we``ird " na.me` (id int PRIMARY KEY)')
    with reading(mysql_database) as read:
        mysql_database.execute(
            "SET sql_mode = 'ANSI_QUOTES'", "INSERT INTO orders VALUES (1, 1)", 'TRUNCATE TABLE "orders"',
            'TRUNCATE "we`ird "" na.me"', 'DROP TABLE "orders"',
        )  # fmt: skip
        assert _ops(read) == [("c", "orders"), ("t", "orders"), ("t", 'we`ird " na.me'), ("t", "orders")]


def test_truncate_in_the_character_set_of_the_client_empties_the_table(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE `täb` (id int PRIMARY KEY)", "CREATE TABLE `表` (id int PRIMARY KEY)")
    with reading(mysql_database) as read:
        mysql_database.execute("INSERT INTO `täb` VALUES (1)")
        with mysql_database.connect() as connection:
            for charset, codec, text in (
                ("latin1", "cp1252", "TRUNCATE `täb`"),
                ("sjis", "cp932", "TRUNCATE TABLE `表`"),
                ("latin1", "cp1252", "DROP TABLE `täb`"),
            ):
                run(connection, f"SET NAMES {charset}")
                connection._execute_command(3, text.encode(codec))  # type: ignore[attr-defined]
                connection._read_query_result()  # type: ignore[attr-defined]
        assert _ops(read) == [("c", "täb"), ("t", "täb"), ("t", "表"), ("t", "täb")]


@pytest.mark.parametrize("flavour", NEWEST_FIRST)
def test_names_in_any_case_are_the_table_where_the_server_keeps_them_in_lower_case(
    new_mysql: NewMysql, flavour: Flavour
) -> None:
    server = new_mysql(flavour=flavour, settings={"lower-case-table-names": "1"})
    server.start()
    database = MysqlDatabase(server, "shop")
    database.execute("CREATE TABLE Orders (id int PRIMARY KEY)")
    with reading(database) as read:
        database.execute("INSERT INTO ORDERS VALUES (1)", "TRUNCATE TABLE `Shop`.`ORDERS`", "DROP TABLE oRDERS")
        assert _ops(read) == [("c", "orders"), ("t", "orders"), ("t", "orders")]


def test_dropped_table_is_empty_also_when_it_is_made_again(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS, "CREATE TABLE more (id int PRIMARY KEY)", "INSERT INTO orders VALUES (1, 1)")
    with reading(mysql_database) as read:
        mysql_database.execute(
            "INSERT INTO orders VALUES (2, 2)", "INSERT INTO more VALUES (7)", "DROP TABLE orders, more", _ORDERS,
            "CREATE TABLE IF NOT EXISTS orders (id int PRIMARY KEY)", "INSERT INTO orders VALUES (3, 3)",
        )  # fmt: skip
        assert _state(read) == {"orders": {3: {"id": 3, "n": 3}}, "more": {}}
        assert not read.stale


def test_dropped_database_leaves_all_its_tables_empty(mysql_database: MysqlDatabase) -> None:
    other = MysqlDatabase(mysql_database.server)
    other.execute(_ORDERS, "CREATE TABLE more (id int PRIMARY KEY)")
    with reading(mysql_database, tables=[f"{mysql_database.name}.*", f"{other.name}.*"]) as read:
        other.execute("INSERT INTO orders VALUES (1, 1)", "INSERT INTO more VALUES (1)")
        other.execute(f"DROP DATABASE `{other.name}`")
        assert sorted(_ops(read)) == [("c", "more"), ("c", "orders"), ("t", "more"), ("t", "orders")]


@_ONLY_MARIADB
def test_create_or_replace_empties_the_table(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS)
    with reading(mysql_database) as read:
        mysql_database.execute(
            "INSERT INTO orders VALUES (1, 1)", "CREATE OR REPLACE TABLE orders (id int PRIMARY KEY) SELECT 5 AS id",
            "SET STATEMENT max_statement_time = 10 FOR TRUNCATE TABLE orders WAIT 3",
        )  # fmt: skip
        assert [[(c.op, c.after) for c in changes] for changes in read.new()] == [
            [("c", {"id": 1, "n": 1})], [("t", None), ("c", {"id": 5})], [("t", None)]
        ]  # fmt: skip


@pytest.mark.parametrize("mysql_server", ["mysql-9", *MARIADBS], indirect=True)
def test_create_table_select_has_its_rows_in_the_log(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS, "INSERT INTO orders VALUES (1, 1), (2, 2)")
    with reading(mysql_database) as read:
        mysql_database.execute(
            "CREATE TABLE copy (id int PRIMARY KEY) SELECT id, n FROM orders", "CREATE TABLE l LIKE copy"
        )
        assert _state(read) == {"copy": {1: {"id": 1, "n": 1}, 2: {"id": 2, "n": 2}}}
        assert not read.stale


def test_swapped_tables_are_stale_and_the_name_in_between_is_empty(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS, "CREATE TABLE other (id int PRIMARY KEY, n int)", "INSERT INTO other VALUES (9, 9)")
    name = mysql_database.name
    with reading(mysql_database) as read:
        mysql_database.execute("RENAME TABLE orders TO x, other TO orders, x TO other")
        read.new()
        assert {table: "renamed to it" in read.reason(table) for table in read.stale} == {
            f"{name}.orders": True, f"{name}.other": True
        }  # fmt: skip
        mysql_database.execute("ALTER TABLE other RENAME TO third", "INSERT INTO third VALUES (1, 1)")
        assert _ops(read) == [("t", "other"), ("c", "third")]
        # the one that is gone stays named: it was stale when it went, and no copy has been made of it
        assert set(read.stale) == {f"{name}.orders", f"{name}.other", f"{name}.third"}


#: `{}` is a table (id, n), `{}p` a partitioned one: which of the two is stale after it
_STATEMENTS = {
    "ALTER TABLE {}p TRUNCATE PARTITION p0": "p",
    "ALTER TABLE {}p DROP PARTITION p0": "p",
    "ALTER TABLE {}p EXCHANGE PARTITION p0 WITH TABLE {}": "tp",
    "ALTER TABLE {}p REORGANIZE PARTITION p0, p1 INTO (PARTITION q VALUES LESS THAN (30))": "",
    "ALTER TABLE {} MODIFY n bigint": "t",
    "ALTER TABLE {} ADD c int DEFAULT 5": "t",
    "ALTER TABLE {} DROP n, ADD n int": "t",
    "ALTER TABLE {} DROP PRIMARY KEY, ADD PRIMARY KEY (id, n)": "t",
    "ALTER TABLE {} CONVERT TO CHARACTER SET latin1": "t",
    "ALTER TABLE {} ADD c int": "",
    "ALTER TABLE {} DROP COLUMN n": "",
    "CREATE INDEX i ON {} (n)": "",
    "ALTER TABLE {} DISCARD TABLESPACE": "t",
    "OPTIMIZE TABLE {}": "",
    "ANALYZE TABLE {}": "",
}


def test_statement_that_changes_rows_without_the_log_names_the_table_stale(mysql_database: MysqlDatabase) -> None:
    tables = [f"t{number}" for number in range(len(_STATEMENTS))]
    for table in tables:
        mysql_database.execute(_ORDERS.replace("orders", table), _PARTED.replace("parted", f"{table}p"))
    expected = set()
    with reading(mysql_database) as read:
        for table, (statement, stale) in zip(tables, _STATEMENTS.items(), strict=True):
            mysql_database.execute(statement.format(table, table))
            expected |= {f"{mysql_database.name}.{table}{'p' if one == 'p' else ''}" for one in stale}
        read.new()
        assert set(read.stale) == expected
        assert all(read.reason(table) for table in expected)
        resumes, notes, orders = read.resumes, read.encoders.notes, dict(read.stale)
    mysql_database.execute("DROP TABLE t12")  # without its tablespace nothing could be read of it
    with reading(mysql_database, resumes, notes=notes) as again:
        # remembered over a restart, for as long as no copy is known to be newer
        again.new()
        assert again.stale == orders


def test_column_dropped_and_added_again_later_names_the_table_stale(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS)
    with reading(mysql_database) as read:
        mysql_database.execute("ALTER TABLE orders DROP COLUMN n")
        read.new()
        assert not read.stale
        resumes, notes = read.resumes, read.encoders.notes
    with reading(mysql_database, resumes, notes=notes) as again:
        mysql_database.execute("ALTER TABLE orders ADD COLUMN N int")
        again.new()
        assert "dropped before" in again.reason(f"{mysql_database.name}.orders")


def test_statement_that_is_not_understood_stops_the_source_without_its_text(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS)
    with reading(mysql_database) as read:
        read.stream._assembler._make.statement_text = lambda data, collation: "TRUNCATE secret secret"  # type: ignore[attr-defined]
        mysql_database.execute("TRUNCATE orders /* é */")
        with pytest.raises(LogUnknownError, match="not understood") as refused:
            read.new()
        assert "secret" not in str(refused.value)
        assert refused.value.position


@_ONLY_MARIADB
def test_table_that_becomes_system_versioned_stops_the_source(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS)
    with reading(mysql_database) as read:
        mysql_database.execute("ALTER TABLE orders ADD SYSTEM VERSIONING")
        with pytest.raises(LogUnknownError, match="system-versioned"):
            read.new()


@_ONLY_MARIADB
def test_sequences_are_no_tables(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_ORDERS, "CREATE SEQUENCE before_it")
    with reading(mysql_database) as read:
        mysql_database.execute("CREATE SEQUENCE s", "SELECT NEXTVAL(s)", "SELECT NEXTVAL(before_it)", "DROP SEQUENCE s")
        assert read.new() == []
        assert [table.table for table in read.source.discover() if table.key] == ["lowwater_marker", "orders"]


def test_database_with_a_dot_in_its_name_is_refused(mysql_server: object, mysql_database: MysqlDatabase) -> None:
    odd = MysqlDatabase(mysql_database.server, f"{mysql_database.name}.x")
    try:
        odd.execute(_ORDERS)
        with (
            pytest.raises(StartRefusedError, match="a dot in its name"),
            reading(mysql_database, tables=[f"{mysql_database.name}.*"]),
        ):
            pass
    finally:
        odd.drop()


@_ONLY_MARIADB
def test_alter_in_two_phases_counts_when_it_has_succeeded(mysql_database: MysqlDatabase) -> None:
    """The log has its start, and then its end: also where it failed, and the table is what it was."""
    two = "SET SESSION binlog_alter_two_phase = ON"
    mysql_database.execute(_ORDERS, "CREATE TABLE other (id int PRIMARY KEY)")
    with reading(mysql_database) as read:
        mysql_database.execute("INSERT INTO orders VALUES (1, 1), (2, 1)")
        with pytest.raises(pymysql.IntegrityError):
            mysql_database.execute(two, "ALTER TABLE orders ADD UNIQUE (n), RENAME TO others, ALGORITHM = COPY")
        assert _ops(read) == [("c", "orders"), ("c", "orders")]
        assert not read.stale
        mysql_database.execute(two, "ALTER TABLE orders RENAME TO others, ALGORITHM = COPY")
        assert _ops(read) == [("t", "orders")]
        assert set(read.stale) == {f"{mysql_database.name}.others"}
