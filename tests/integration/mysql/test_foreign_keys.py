"""Foreign keys whose actions are not in the log: refused, or their children are copied again.

On MySQL 9.6 and later the changes are in the log.
"""

from __future__ import annotations

import pytest
from tests.integration.mysql.reading import reading, source_of
from tests.support.mysql import MysqlDatabase, NewMysql, connect, run

from lowwater.errors import LogUnknownError, StartRefusedError

_PARENT = "CREATE TABLE parent (id int PRIMARY KEY, code int UNIQUE, note varchar(20))"
_CHILD = "CREATE TABLE child (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)"
_GRANDCHILD = (
    "CREATE TABLE grandchild (id int PRIMARY KEY, c int, FOREIGN KEY (c) REFERENCES child (id) ON DELETE SET NULL)"
)
_CODED = "CREATE TABLE coded (id int PRIMARY KEY, c int, FOREIGN KEY (c) REFERENCES parent (code) ON UPDATE CASCADE)"
_PLAIN = "CREATE TABLE plain (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES parent (id))"
_BEFORE_9_6 = pytest.mark.parametrize("mysql_server", ["mysql-8.0", "mariadb-10.11", "mariadb-11.8"], indirect=True)
_FROM_9_6 = pytest.mark.parametrize("mysql_server", ["mysql-9"], indirect=True)


def _stale(database: MysqlDatabase, *names: str) -> set[str]:
    return {f"{database.name}.{name}" for name in names}


@_BEFORE_9_6
def test_foreign_key_actions_without_the_log_are_refused_with_a_hint(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _PLAIN)
    with reading(mysql_database) as read:
        mysql_database.execute(_CHILD)
        with pytest.raises(LogUnknownError, match="has a foreign key to") as stopped:
            read.new()
        assert "foreign_key_actions: recopy" in str(stopped.value.hint)
    with pytest.raises(StartRefusedError, match=rf"{mysql_database.name}\.child") as refused, reading(mysql_database):
        pass
    assert "foreign_key_actions: recopy" in str(refused.value.hint)
    (check,) = [check for check in source_of(mysql_database).check() if check.name == "foreign keys"]
    assert not check.is_good
    (check,) = [c for c in source_of(mysql_database, foreign_key_actions="recopy").check() if c.name == "foreign keys"]
    assert check.is_good
    # a parent alone loses nothing
    with reading(mysql_database, tables=[f"{mysql_database.name}.{name}" for name in ("parent", "lowwater_marker")]):
        pass


@_BEFORE_9_6
def test_foreign_keys_with_backquotes_in_their_names_are_read(mysql_database: MysqlDatabase) -> None:
    """MariaDB's SHOW CREATE TABLE doubles them in the names of tables only."""
    mysql_database.execute(
        "CREATE TABLE `p``q` (`i``d` int PRIMARY KEY, `j``d` int, note int, UNIQUE (`j``d`, note))",
        "CREATE TABLE `c``d` (`k``k` int PRIMARY KEY, `f``f` int, m int,"
        " FOREIGN KEY (`f``f`) REFERENCES `p``q` (`i``d`) ON DELETE SET NULL,"
        " CONSTRAINT `n``n` FOREIGN KEY (`f``f`, m) REFERENCES `p``q` (`j``d`, note) ON UPDATE CASCADE)",
        "INSERT INTO `p``q` VALUES (1, 5, 2), (2, 6, 1)",
        "INSERT INTO `c``d` VALUES (7, 1, NULL)",
    )
    with pytest.raises(StartRefusedError, match=r"c`d → .*p`q"), reading(mysql_database):
        pass
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        mysql_database.execute("DELETE FROM `p``q` WHERE `i``d` = 1")
        read.new()
        assert set(read.stale) == _stale(mysql_database, "c`d")


@_BEFORE_9_6
def test_user_who_may_only_select_is_refused_too(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _CHILD)
    with connect(mysql_database.server) as connection:
        run(connection, "CREATE USER IF NOT EXISTS only@'%' IDENTIFIED BY 'x'")
        run(connection, "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO only@'%'")
        if mysql_database.is_mariadb:
            run(connection, "GRANT BINLOG MONITOR ON *.* TO only@'%'")
        run(connection, f"GRANT SELECT ON `{mysql_database.name}`.* TO only@'%'")
    source = source_of(mysql_database, user="only", password="${env:LOWWATER_TEST_PASSWORD}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOWWATER_TEST_PASSWORD", "x")
        (check,) = [check for check in source.check() if check.name == "foreign keys"]
    assert not check.is_good
    assert "child" in check.what


@_BEFORE_9_6
def test_deleted_parent_names_its_children_stale_and_their_children(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _CHILD, _GRANDCHILD, _CODED, _PLAIN)
    mysql_database.execute(
        "INSERT INTO parent VALUES (1, 10, 'a'), (2, 20, 'b'), (3, 30, 'c')", "INSERT INTO child VALUES (1, 1), (2, 2)",
        "INSERT INTO grandchild VALUES (1, 1)", "INSERT INTO coded VALUES (1, 20)",
    )  # fmt: skip
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        mysql_database.execute("UPDATE parent SET note = 'x'", "INSERT INTO parent VALUES (4, 40, 'd')")
        read.new()
        assert not read.stale
        mysql_database.execute("SET foreign_key_checks = 0", "DELETE FROM parent WHERE id = 3")
        read.new()
        assert not read.stale
        mysql_database.execute("DELETE FROM parent WHERE id = 1")
        read.new()
        assert set(read.stale) == _stale(mysql_database, "child", "grandchild")
        first = dict(read.stale)
        mysql_database.execute("UPDATE parent SET code = 21 WHERE code = 20")
        read.new()
        assert set(read.stale) == _stale(mysql_database, "child", "grandchild", "coded")
        assert "parent changed" in read.reason(f"{mysql_database.name}.coded")
        assert {name: order for name, order in read.stale.items() if name in first} == first


@_BEFORE_9_6
def test_parent_that_is_not_captured_names_its_children_stale(mysql_database: MysqlDatabase) -> None:
    outside = MysqlDatabase(mysql_database.server)
    try:
        outside.execute(_PARENT, "INSERT INTO parent VALUES (1, 10, 'a'), (2, 20, 'b')")
        with reading(mysql_database, foreign_key_actions="recopy") as read:
            mysql_database.execute(
                "CREATE TABLE c (id int PRIMARY KEY, p int, k int, "
                f"FOREIGN KEY (p) REFERENCES {outside.name}.parent (id) ON DELETE CASCADE, "
                f"FOREIGN KEY (k) REFERENCES {outside.name}.parent (code) ON UPDATE SET NULL)",
                "INSERT INTO c VALUES (1, 1, 20)",
            )
            outside.execute("UPDATE parent SET note = 'x'")
            read.new()
            assert not read.stale
            outside.execute("UPDATE parent SET code = 21 WHERE code = 20")
            read.new()
            assert set(read.stale) == _stale(mysql_database, "c")
            # a child that follows its renamed parent
            outside.execute("RENAME TABLE parent TO elder", "DELETE FROM elder WHERE id = 1")
            before = dict(read.stale)
            read.new()
            assert read.stale != before
    finally:
        mysql_database.drop()
        outside.drop()


@_BEFORE_9_6
def test_parent_without_a_database_is_in_the_database_of_its_child(mysql_database: MysqlDatabase) -> None:
    """Whichever the session is in."""
    outside = MysqlDatabase(mysql_database.server)
    try:
        mysql_database.execute(_PARENT, "INSERT INTO parent VALUES (1, 10, 'a')")
        with reading(mysql_database, foreign_key_actions="recopy") as read:
            outside.execute(_CHILD.replace("TABLE child", f"TABLE {mysql_database.name}.child"))
            mysql_database.execute("INSERT INTO child VALUES (7, 1)", "DELETE FROM parent")
            read.new()
            assert set(read.stale) == _stale(mysql_database, "child")
    finally:
        outside.drop()


@_BEFORE_9_6
def test_parent_whose_column_has_another_name_names_its_children_stale(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(
        _PARENT, _CODED, "INSERT INTO parent VALUES (1, 10, 'a')", "INSERT INTO coded VALUES (1, 10)"
    )
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        mysql_database.execute("ALTER TABLE parent CHANGE code number int", "UPDATE parent SET number = 11")
        read.new()
        assert set(read.stale) == _stale(mysql_database, "coded", "parent")


@_BEFORE_9_6
def test_key_that_was_dropped_before_the_log_is_read_still_counts(mysql_database: MysqlDatabase) -> None:
    """While nobody reads, a parent's rows go, and then the key: the catalogue of the next start does not show it."""
    mysql_database.execute(
        _PARENT, _CHILD.replace("FOREIGN KEY", "CONSTRAINT goes FOREIGN KEY"), "INSERT INTO parent VALUES (1, 10, 'a')",
        "INSERT INTO parent VALUES (2, 20, 'b')", "INSERT INTO child VALUES (1, 1)",
    )  # fmt: skip
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        read.new()
        resumes, notes = read.resumes, dict(read.encoders.notes)
    mysql_database.execute("DELETE FROM parent WHERE id = 1", "ALTER TABLE child DROP FOREIGN KEY goes")
    with reading(mysql_database, resumes, notes=notes, foreign_key_actions="recopy") as read:
        read.new()
        assert set(read.stale) == _stale(mysql_database, "child")
        before = dict(read.stale)
        # it is over by now
        mysql_database.execute("DELETE FROM parent WHERE id = 2")
        read.new()
        assert read.stale == before
        assert not [name for name, value in read.encoders.notes.items() if name.startswith("foreign_keys/") and value]


@_BEFORE_9_6
def test_key_of_a_new_parent_to_one_further_up_counts(mysql_database: MysqlDatabase) -> None:
    """The parent is not captured, and was nobody's parent when capture began."""
    outside = MysqlDatabase(mysql_database.server)
    try:
        outside.execute(_PARENT, _CHILD, "INSERT INTO parent VALUES (1, 10, 'a')", "INSERT INTO child VALUES (1, 1)")
        mysql_database.execute("CREATE TABLE c (id int PRIMARY KEY, p int)", "INSERT INTO c VALUES (1, 1)")
        with reading(mysql_database, foreign_key_actions="recopy") as read:
            mysql_database.execute(
                f"ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES {outside.name}.child (id) ON DELETE CASCADE"
            )
            outside.execute("DELETE FROM parent")
            read.new()
            assert set(read.stale) == _stale(mysql_database, "c")
    finally:
        mysql_database.drop()
        outside.drop()


@_BEFORE_9_6
def test_rolled_back_delete_of_a_parent_names_nothing(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _CHILD, "INSERT INTO parent VALUES (1, 10, 'a')")
    with reading(mysql_database, foreign_key_actions="recopy") as read:
        mysql_database.execute("BEGIN", "DELETE FROM parent", "ROLLBACK")
        read.new()
        assert not read.stale
        mysql_database.execute("XA START 'x'", "DELETE FROM parent", "XA END 'x'", "XA PREPARE 'x'")
        read.new()
        assert not read.stale
        mysql_database.execute("XA COMMIT 'x'")
        read.new()
        assert set(read.stale) == _stale(mysql_database, "child")


@_FROM_9_6
def test_foreign_key_actions_are_in_the_log_of_new_servers(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _CHILD, _GRANDCHILD, "INSERT INTO parent VALUES (1, 10, 'a')",
                           "INSERT INTO child VALUES (7, 1)", "INSERT INTO grandchild VALUES (9, 7)")  # fmt: skip
    with reading(mysql_database) as read:
        mysql_database.execute("DELETE FROM parent")
        assert sorted((c.op, c.table) for c in read.one()) == [("d", "child"), ("d", "parent"), ("u", "grandchild")]
        assert not read.stale


def test_new_server_that_leaves_foreign_keys_to_the_engine_is_refused(new_mysql: NewMysql) -> None:
    server = new_mysql(flavour="mysql-9", settings={"innodb-native-foreign-keys": "ON"})
    server.start()
    database = MysqlDatabase(server, "shop")
    database.execute(_PARENT, _CHILD, "INSERT INTO parent VALUES (1, 10, 'a')", "INSERT INTO child VALUES (7, 1)")
    with pytest.raises(StartRefusedError, match="foreign keys change rows without the log"), reading(database):
        pass
    with reading(database, foreign_key_actions="recopy") as read:
        database.execute("DELETE FROM parent")
        assert [(c.op, c.table) for c in read.one()] == [("d", "parent")]
        assert set(read.stale) == _stale(database, "child")


@_BEFORE_9_6
def test_children_are_not_copied_again_more_often_than_configured(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(_PARENT, _CHILD)
    with reading(mysql_database, foreign_key_actions="recopy", foreign_key_recopy_seconds=600) as read:
        child, parent = (f"{mysql_database.name}.{name}" for name in ("child", "parent"))
        view = read.source.begin_view([child])
        assert [planned.table.table for planned in view.plan(10)] == ["child"]
        view.close()
        view = read.source.begin_view([child, parent])
        assert [planned.table.table for planned in view.plan(10)] == ["parent"]
        assert view.plan(10) == []
        view.close()
