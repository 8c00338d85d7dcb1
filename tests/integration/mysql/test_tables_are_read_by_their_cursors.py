"""The mode `incremental` on MySQL and MariaDB: every row once, bounds that are kept, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.mysql.reading import reading, source_of
from tests.support.mysql import MysqlDatabase
from tests.support.syncs import Syncs, settings_of

from lowwater.errors import StartRefusedError


@contextmanager
def _syncing(
    database: MysqlDatabase, cursors: dict[str, Any], resume: bytes | None = None, **settings: Any
) -> Iterator[Syncs]:
    named = {f"{database.name}.{table}": cursor for table, cursor in cursors.items()}
    made = Syncs(source_of(database, **{**settings_of(named), **settings}), resume)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def items(mysql_database: MysqlDatabase) -> MysqlDatabase:
    mysql_database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, at timestamp(6) NULL, name varchar(20), f float, KEY (at, id))",
        "INSERT INTO items VALUES (1, '2026-01-01 00:00:00', 'a', 0.1), (2, '2026-01-01 00:00:00', 'b', 0.2),"
        " (3, NULL, 'null', 0.3)",
    )
    return mysql_database


def test_every_row_comes_once_with_its_value_and_goes_on_after_a_restart(items: MysqlDatabase) -> None:
    cursors = {"items": {"primary": "at", "secondary": "id"}}
    with _syncing(items, cursors) as syncs:
        assert [row["id"] for row in syncs.rows()] == [3, 1, 2]
        items.execute("INSERT INTO items VALUES (4, '2026-01-01 00:00:00', 'late', 1), (5, '2026-01-02', 'next', 1)")
        assert [row["id"] for row in syncs.rows()] == [4, 5]
        resume = syncs.mark.resume
    items.execute("UPDATE items SET at = '2026-01-03 00:00:00', name = 'new' WHERE id = 1")
    with _syncing(items, cursors, resume) as again:
        (row,) = again.rows()
        assert (row["id"], row["name"], row["at"]) == (1, "new", 1_767_398_400_000_000)
        assert again.rows() == []


def test_views_are_read_by_name_and_numbers_settle(items: MysqlDatabase) -> None:
    items.execute("CREATE VIEW seen AS SELECT id, name FROM items")
    with _syncing(items, {"seen": {"primary": "id", "key": ["id"]}}) as syncs:
        assert [row["id"] for row in syncs.rows()] == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("varchar(20)", ["'a'", "'b''c'", "'é'"]),
        ("decimal(10,3)", ["1.500", "20", "-3"]),
        ("varbinary(9)", ["x'00'", "x'ff00'"]),
        ("date", ["'2020-01-01'", "'2021-01-01'"]),
        ("bigint unsigned", ["18446744073709551615", "1"]),
        ("datetime(3)", ["'2020-01-01 00:00:00.123'", "'2021-01-01'"]),
    ],
)
def test_a_cursor_of_any_type_that_has_an_order(mysql_database: MysqlDatabase, kind: str, values: list[str]) -> None:
    mysql_database.execute(f"CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, c {kind})")
    with _syncing(mysql_database, {"t": {"primary": "c"}}) as syncs:
        syncs.rows()
        for value in values:
            mysql_database.execute(f"INSERT INTO t (c) VALUES ({value})")
        assert len(syncs.rows()) == len(values)
        assert syncs.rows() == []


def test_wrong_cursors_are_refused_with_what_to_do(items: MysqlDatabase) -> None:
    items.execute("CREATE TABLE keyless (at timestamp NULL)")
    for cursors, what in (
        ({"items": {"primary": "nothing"}}, "no column nothing"),
        ({"items": {"primary": "f"}}, "order"),
        ({"keyless": {"primary": "at"}}, "key"),
        ({"absent": {"primary": "at"}}, "no such table"),
    ):
        with pytest.raises(StartRefusedError, match=what), _syncing(items, cursors):
            pass


def test_a_source_keeps_its_mode(items: MysqlDatabase) -> None:
    cursors = {"items": {"primary": "at"}}
    with reading(items) as read:
        resumes = read.resumes
    with pytest.raises(StartRefusedError, match="captured in the mode cdc"), _syncing(items, cursors, resumes[1]):
        pass
    with _syncing(items, cursors) as syncs:
        resume = syncs.mark.resume
    with pytest.raises(StartRefusedError, match="captured in the mode incremental"), reading(items, {1: resume}):
        pass


def test_check_says_what_a_source_lacks(items: MysqlDatabase) -> None:
    found = {check.name: check for check in source_of(items).check()}
    assert all(check.is_good for check in found.values()), found
    assert {"log_bin", "binlog_format", "binlog_row_metadata", "position", "server_id", "privileges", "retention",
            "tables", "select", "version"} <= set(found)  # fmt: skip
    items.execute("CREATE TABLE keyless (a int)")
    wrong = {check.name: check for check in source_of(items).check() if not check.is_good}
    assert "keyless" in wrong["tables"].what
    (lost,) = source_of(items, port=1).check()
    assert not lost.is_good
    cursors = settings_of({f"{items.name}.items": {"primary": "at"}})
    assert all(check.is_good for check in source_of(items, **cursors).check())
