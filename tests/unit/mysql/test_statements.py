"""Statements of a log: what they are, which tables they touch, and whether the rows are still what the log says."""

from __future__ import annotations

import pytest

from lowwater_extractor.sources.mysql.ddl.effects import KEY_CHANGED, Effect, ForeignKey, emptied, moved
from lowwater_extractor.sources.mysql.ddl.statements import What, Xid, classify
from lowwater_extractor.sources.mysql.ddl.tokens import NotUnderstoodError, SqlMode, TokenKind, tokens


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("BEGIN", What.BEGIN),
        ("COMMIT", What.COMMIT),
        ("COMMIT /* x */", What.COMMIT),
        ("START TRANSACTION", What.BEGIN),
        ("ROLLBACK", What.ROLLBACK),
        ("ROLLBACK TO `a`", What.ROLLBACK_TO),
        ("rollback/**/to a", What.ROLLBACK_TO),
        ("SAVEPOINT `a`", What.SAVEPOINT),
        ("/* x */ create table t (a int)", What.DDL),
        ("INSERT INTO t VALUES (1)", What.ROWS),
        ("-- hello\nUPDATE t SET a = 1", What.ROWS),
        ("#hello\n/*x*/DELETE FROM t", What.ROWS),
        ("SET STATEMENT max_statement_time=1 FOR INSERT INTO t VALUES (1)", What.ROWS),
        ("/*!40000 ALTER TABLE `t` DISABLE KEYS */", What.DDL),
        ("FROBNICATE", What.UNKNOWN),
        ("CREATE FROB x", What.UNKNOWN),
        ("DROP FROB x", What.UNKNOWN),
        ("ALTER FROB x", What.UNKNOWN),
        ("", What.UNKNOWN),
        ("/* only this */", What.UNKNOWN),
        ("TRUNCATE t, u", What.UNKNOWN),
        ("DROP TABLE t FROB", What.UNKNOWN),
        ("RENAME TABLE a b", What.UNKNOWN),
        ("TRUNCATE `t", What.UNKNOWN),
        ("TRUNCATE t /* no end", What.UNKNOWN),
        ("TRUNCATE t */", What.UNKNOWN),
        ("GRANT ALL ON *.* TO x", What.DDL),
        ("CREATE USER x IDENTIFIED BY 'secret'", What.DDL),
        ("CREATE DEFINER=`a`@`b` TRIGGER t BEFORE INSERT ON u FOR EACH ROW TRUNCATE t", What.DDL),
        ("CREATE ALGORITHM=UNDEFINED VIEW v AS SELECT 1", What.DDL),
        ("CREATE SEQUENCE s", What.DDL),
        ("XA FROB", What.UNKNOWN),
    ],
)
def test_every_statement_of_a_log_is_known_by_its_verb_and_object_or_is_unknown(text: str, what: What) -> None:
    assert classify(text.encode()).what is what


def test_text_of_a_statement_that_is_not_understood_is_not_in_what_is_said_of_it() -> None:
    for text in ("CREATE FROB IDENTIFIED BY 'secret'", "secret FROB", "ALTER secret FROB", "TRUNCATE secret secret"):
        assert "secret" not in classify(text).verb.lower()


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("TRUNCATE t", ("", "t")),
        ("TRUNCATE TABLE /* nightly */ orders", ("", "orders")),
        ("TRUNCATE orders/*x*/", ("", "orders")),
        ("/*!50001 TRUNCATE TABLE orders */", ("", "orders")),
        ("TRUNCATE /* 99999 TABLE */ orders", ("", "orders")),
        ("TRUNCATE /*!TABLE*/ orders", ("", "orders")),
        ("truncate table `a``b`.`c d`", ("a`b", "c d")),
        ("TRUNCATE TABLE s . t /* x */", ("s", "t")),
        ("TRUNCATE TABLE s/**/./**/t", ("s", "t")),
        ("TRUNCATE TABLE .t", ("", "t")),
        ("TRUNCATE TABLE t;", ("", "t")),
        ("TRUNCATE 2024_x", ("", "2024_x")),
        ("TRUNCATE s.2024", ("s", "2024")),
        ("TRUNCATE `table`", ("", "table")),
        ("TRUNCATE `/*`", ("", "/*")),
        ("TRUNCATE `-- x`", ("", "-- x")),
        ("TRUNCATE t -- x", ("", "t")),
        ("TRUNCATE t --", ("", "t")),
        ("TRUNCATE t # x", ("", "t")),
        ("TRUNCATE täb", ("", "täb")),
        ("TRUNCATE `\\`", ("", "\\")),
    ],
)
def test_truncate_names_its_table_however_it_is_written(text: str, table: tuple[str, str]) -> None:
    found = classify(text.encode())
    assert (found.what, found.effects) == (What.DDL, (emptied(table),))


@pytest.mark.parametrize(
    "text", ["TRUNCATE t WAIT 5", "SET STATEMENT a=1, b='for' FOR TRUNCATE t", "/*M!100100 TRUNCATE t*/"]
)
def test_truncate_of_mariadb_names_its_table(text: str) -> None:
    assert classify(text, is_mariadb=True).effects == (emptied(("", "t")),)


def test_comment_for_mariadb_is_a_comment_for_mysql() -> None:
    assert classify("TRUNCATE /*M!100100 a. */ t").effects == (emptied(("", "t")),)
    assert classify("TRUNCATE /*M!100100 a. */ t", is_mariadb=True).effects == (emptied(("a", "t")),)


def test_double_quotes_are_names_or_values_as_the_sql_mode_says() -> None:
    assert classify('TRUNCATE "a""b"', SqlMode.ANSI_QUOTES).effects == (emptied(("", 'a"b')),)
    assert classify('TRUNCATE "a"').what is What.UNKNOWN
    assert classify("TRUNCATE [a]]b c]", SqlMode.MSSQL, is_mariadb=True).effects == (emptied(("", "a]b c")),)


def test_backslash_escapes_as_the_sql_mode_says() -> None:
    text = r"CREATE TABLE t (a char(9) DEFAULT 'x\' REFERENCES p (a) ON DELETE CASCADE, ')"
    assert classify(text).effects[0].keys == ()
    assert len(classify(text.replace(", ')", ")"), SqlMode.NO_BACKSLASH_ESCAPES).effects[0].keys) == 1
    assert [token.kind for token in tokens(r"'a\'b' 'c''d' x")] == [TokenKind.TEXT, TokenKind.TEXT, TokenKind.WORD]
    with pytest.raises(NotUnderstoodError):
        list(tokens(r"'a\'"))


@pytest.mark.parametrize(
    ("text", "tables"),
    [
        ("DROP TABLE a, s.b", [("", "a"), ("s", "b")]),
        ("DROP TABLE IF EXISTS `a`,`b` /* generated by server */", [("", "a"), ("", "b")]),
        ("DROP TABLES a CASCADE", [("", "a")]),
        ("DROP TEMPORARY TABLE IF EXISTS `a`", []),
        ("DROP DATABASE s", [("s", "")]),
        ("DROP SCHEMA IF EXISTS `s`", [("s", "")]),
        ("DROP VIEW a", []),
        ("DROP INDEX a ON t", []),
    ],
)
def test_drop_names_all_that_is_gone(text: str, tables: list[tuple[str, str]]) -> None:
    assert classify(text).effects == tuple(emptied(table, is_gone=True) for table in tables)


def test_create_or_replace_empties_and_if_not_exists_does_not() -> None:
    assert classify("CREATE OR REPLACE TABLE t (a int)").effects[0] == emptied(("", "t"))
    assert classify("CREATE OR REPLACE DATABASE s").effects == (emptied(("s", "")),)
    assert classify("CREATE TABLE IF NOT EXISTS t (a int)").effects == (Effect(("", "t")),)
    assert classify("CREATE TABLE t LIKE u").effects == (Effect(("", "t")),)
    assert classify("CREATE TEMPORARY TABLE t (a int)").effects == ()


def test_renames_come_one_after_the_other() -> None:
    a, b, x = ("", "a"), ("", "b"), ("", "x")
    assert classify("RENAME TABLE a TO x, b TO a, x TO b").effects == (moved(a, x), moved(b, a), moved(x, b))
    assert classify("ALTER TABLE a RENAME AS s.b").effects[1] == moved(a, ("s", "b"))
    assert classify("ALTER TABLE a ADD c int, RENAME b").effects[1] == moved(a, b)
    assert classify("RENAME USER a TO b").effects == ()


@pytest.mark.parametrize(
    "parts",
    [
        "ADD c int",
        "ADD COLUMN c int",
        "ADD COLUMN c int NULL",
        "ADD c varchar(9) CHARACTER SET latin1 COMMENT 'x' FIRST",
        "ADD (c int, d int)",
        "ADD c timestamp NULL",
        "ADD c int DEFAULT NULL",
        "ADD c timestamp(3) NULL DEFAULT NULL",
        "DROP c",
        "DROP COLUMN c",
        "ADD INDEX i (a)",
        "ADD UNIQUE (a)",
        "ADD VECTOR INDEX v (a)",
        "ADD vector int",
        "ADD UNIQUE KEY k (a)",
        "DROP INDEX i",
        "DROP KEY k",
        "ADD CONSTRAINT x CHECK (a > 1)",
        "ADD CONSTRAINT FOREIGN KEY (a) REFERENCES p (a)",
        "DROP FOREIGN KEY x",
        "RENAME INDEX a TO b",
        "ALTER c SET DEFAULT 5",
        "ALTER COLUMN c DROP DEFAULT",
        "ENGINE=InnoDB",
        "COMMENT='x, y'",
        "AUTO_INCREMENT = 5",
        "DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
        "ORDER BY a",
        "FORCE",
        "ALGORITHM=INPLACE",
        "DISABLE KEYS",
        "ADD PARTITION (PARTITION p VALUES LESS THAN (5))",
        "REORGANIZE PARTITION p INTO (PARTITION q)",
        "PARTITION BY HASH (a) PARTITIONS 4",
        "REORGANIZE PARTITION p, q INTO (PARTITION r)",
        "ORDER BY a, b DESC, `c`, ADD d int",
        "REMOVE PARTITIONING",
        "COALESCE PARTITION 2",
        "ADD `primary` int",
        "ADD partition_name int",
        "ROW_FORMAT=DYNAMIC KEY_BLOCK_SIZE=8",
        "ADD c int, ALGORITHM=INSTANT, LOCK=NONE",
    ],
)
def test_alter_that_keeps_every_row_needs_no_copy(parts: str) -> None:
    (found,) = classify(f"ALTER TABLE s.t {parts}").effects
    assert (found.table, found.reason) == (("s", "t"), "")


@pytest.mark.parametrize(
    "parts",
    [
        "TRUNCATE PARTITION p",
        "DROP PARTITION p",
        "/* x */ DROP /**/ PARTITION p",
        "EXCHANGE PARTITION p WITH TABLE u",
        "DISCARD TABLESPACE",
        "IMPORT TABLESPACE",
        "IMPORT PARTITION p TABLESPACE",
        "CONVERT PARTITION p TO TABLE u",
        "CONVERT TABLE u TO PARTITION p VALUES LESS THAN (5)",
        "CONVERT TO CHARACTER SET latin1",
        "MODIFY c varchar(5)",
        "CHANGE a b int",
        "RENAME COLUMN a TO b",
        "ADD c int DEFAULT 5",
        "ADD vector int DEFAULT 5",
        "ADD COLUMN (vector int NOT NULL, INDEX (a))",
        "ADD c int NOT NULL",
        "ADD c int AS (a + 1)",
        "ADD c timestamp",
        "ADD c datetime DEFAULT CURRENT_TIMESTAMP",
        "ADD (c int, d int NOT NULL)",
        "ADD c SERIAL",
        "DROP c, ADD c int",
        "ENGINE=BLACKHOLE",
        "FROB PARTITION p",
        "UNION=(a,b)",
        "REPAIR PARTITION p",
        "ADD c int DEFAULT 5, ALTER c DROP DEFAULT",
        "ADD c int GENERATED ALWAYS AS (1) VIRTUAL NULL",
    ],
)
def test_alter_that_changes_rows_without_the_log_has_a_reason_for_a_copy(parts: str) -> None:
    assert classify(f"ALTER TABLE t {parts}", is_mariadb=True).effects[0].reason


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t DROP PRIMARY KEY",
        "ALTER TABLE t ADD PRIMARY KEY (a)",
        "ALTER TABLE t ADD CONSTRAINT PRIMARY KEY (a)",
        "ALTER TABLE t ADD CONSTRAINT x PRIMARY KEY (a)",
        "ALTER TABLE t ADD c int PRIMARY KEY",
        "ALTER TABLE t ADD c int KEY",
        "ALTER TABLE t DROP INDEX `PRIMARY`",
        "ALTER TABLE t DROP CONSTRAINT `primary`",
        "DROP INDEX `PRIMARY` ON t",
        "ALTER TABLE t MODIFY a int PRIMARY KEY",
    ],
)
def test_changed_primary_key_is_named(statement: str) -> None:
    assert KEY_CHANGED in classify(statement).effects[0].reason


def test_other_tables_of_partitions_are_named() -> None:
    for text in (
        "EXCHANGE PARTITION p WITH TABLE s.u",
        "CONVERT PARTITION p TO TABLE s.u",
        "CONVERT TABLE s.u TO PARTITION p",
    ):
        effects = classify(f"ALTER TABLE t {text}").effects
        assert [effect.table for effect in effects if effect.reason] == [("", "t"), ("s", "u")]


def test_foreign_keys_are_known_by_their_actions() -> None:
    text = (
        "CREATE TABLE c (a int, b int, FOREIGN KEY (a) REFERENCES s.p (x, `y z`) MATCH FULL "
        "ON UPDATE SET NULL ON DELETE CASCADE,"
        "CONSTRAINT k FOREIGN KEY (b) REFERENCES q (x) ON DELETE RESTRICT ON UPDATE NO ACTION,"
        "d int REFERENCES r (x) ON DELETE SET DEFAULT)"
    )
    assert classify(text).effects[0].keys == (
        ForeignKey(("s", "p"), ("x", "y z"), acts_on_delete=True, acts_on_update=True),
        ForeignKey(("", "r"), ("x",), acts_on_delete=True, acts_on_update=False),
    )


def test_system_versioning_is_known() -> None:
    assert classify("CREATE TABLE t (a int) WITH SYSTEM VERSIONING").effects[0].is_versioned
    assert classify("ALTER TABLE t ADD SYSTEM VERSIONING").effects[0].is_versioned
    assert not classify("ALTER TABLE t DROP SYSTEM VERSIONING").effects[0].is_versioned


def test_xa_statements_name_their_transaction() -> None:
    xid = Xid(1, b"abc", b"\x00\xff")
    found = classify(f"XA COMMIT {xid}".encode())
    assert (found.what, found.xid) == (What.XA_COMMIT, xid)
    assert classify(f"XA ROLLBACK {xid}".encode()).what is What.XA_ROLLBACK
