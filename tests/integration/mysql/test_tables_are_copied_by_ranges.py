"""Chunks of a copy: all rows, each once, whatever the key; and what a reader must be able to see."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from tests.integration.mysql.copied import copied, planned, read
from tests.integration.mysql.reading import reading, source_of
from tests.support.mysql import MYSQLS, MysqlDatabase, run

from lowwater.codec.rules import ColumnRules, Mask
from lowwater.errors import SnapshotGoneError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.mysql.snapshot.chunks import Bounds

_KEYS = {
    "numbers": ("id int", "id", "{n} * 3 - 500"),
    "unsigned_": ("id bigint unsigned", "id", "18446744073709550000 + {n}"),
    "texts": ("id varchar(30) COLLATE utf8mb4_general_ci", "id", "CONCAT('Key ''é', {n} % 7, '-', {n})"),
    "bytes_": ("id varbinary(20)", "id", "LEFT(UNHEX(SHA2({n}, 256)), 20)"),
    "pairs": ("a varchar(10), b int", "a, b", "CHAR(97 + {n} % 5), {n}"),
    "times": ("id datetime(3)", "id", "'2026-01-01 00:00:00.123' + INTERVAL {n} SECOND"),
    "decimals": ("id decimal(20,5)", "id", "{n} / 7 * 100000"),
    "labels": ("e enum('z','a','m'), id int", "e, id", "{n} % 3 + 1, {n}"),
}


@pytest.mark.parametrize("name", _KEYS)
def test_the_chunks_of_a_table_are_the_table_whatever_its_key(mysql_database: MysqlDatabase, name: str) -> None:
    columns, key, values = _KEYS[name]
    rows = 400
    mysql_database.execute(
        f"CREATE TABLE {name} ({columns}, n int, PRIMARY KEY ({key}))",
        f"INSERT INTO {name} VALUES " + ", ".join(f"({values.format(n=n)}, {n})" for n in range(rows)),
        f"ANALYZE TABLE {name}",
    )
    source = source_of(mysql_database, chunk_rows=60)
    (plan,) = planned(source, f"{mysql_database.name}.{name}")
    assert plan.at is None
    found = [read(source, plan, bounds) for bounds, _ in plan.chunks]
    numbers = [n for table in found for n in table["n"].to_pylist()]
    assert sorted(numbers) == list(range(rows))
    if name != "labels":
        assert len(plan.chunks) > 2
        assert max(table.num_rows for table in found) < rows / 2
    # what comes after the plan lies in one of them, too
    mysql_database.execute(f"UPDATE {name} SET n = n + 1000")
    assert sum(read(source, plan, bounds).num_rows for bounds, _ in plan.chunks) == rows


def test_columns_are_hidden_in_a_copy_too(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute(
        "CREATE TABLE people (id int PRIMARY KEY, name varchar(20), born date, secret text)",
        "INSERT INTO people VALUES (1, 'Ada', '1815-12-10', 'x'), (2, NULL, NULL, NULL)",
    )
    where = f"{mysql_database.name}.people"
    rules = ColumnRules(
        frozenset({f"{where}.secret"}), {f"{where}.name": Mask.REDACT, f"{where}.born": Mask.HASH}, b"key"
    )
    rows = copied(source_of(mysql_database), where, rules).to_pylist()
    assert [row["name"] for row in rows] == ["***", None]
    assert "secret" not in rows[0]
    assert len(rows[0]["born"]) == 64
    assert rows[1]["born"] is None


def test_a_table_that_was_altered_or_dropped_is_planned_anew(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int)", "INSERT INTO t VALUES (1, 2, 3)")
    source = source_of(mysql_database)
    where = f"{mysql_database.name}.t"
    (plan,) = planned(source, where)
    mysql_database.execute("ALTER TABLE t MODIFY a varchar(20)")
    with pytest.raises(SnapshotGoneError, match="another type"):
        read(source, plan, plan.chunks[0][0])
    mysql_database.execute("DROP TABLE t")
    with pytest.raises(SnapshotGoneError):
        read(source, plan, plan.chunks[0][0])
    (gone,) = planned(source, where)
    assert gone.chunks == []


def test_a_reader_waits_until_it_sees_what_the_stream_has_read(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with reading(mysql_database) as stream:
        stream.new()
        (plan,) = planned(stream.source, f"{mysql_database.name}.t")
        bounds = Bounds.decode(plan.chunks[0][0])
        assert bounds.gtids
        assert read(stream.source, plan, plan.chunks[0][0]).num_rows == 1
        # as if the stream had read what is not committed for others yet
        ahead = replace(bounds, position=bounds.position + 1_000_000, gtids=_later(bounds.gtids))
        source = source_of(mysql_database, visible_seconds_max=0.5)
        with pytest.raises(SourceLostError, match="not visible yet"):
            read(source, plan, ahead.encode())


def _later(gtids: str) -> str:
    """One more than there is; MariaDB is asked for its offset, not for this."""
    head, _, last = gtids.rpartition("-")
    return f"{head}-{int(last) + 1_000}"


def test_the_end_of_the_log_is_covered_once_the_stream_has_passed_it(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    with reading(mysql_database) as stream:
        mysql_database.execute("INSERT INTO t VALUES (1)")
        covered = stream.stream.end_of_log()  # type: ignore[attr-defined]
        assert covered() is None
        stream.new()
        assert covered() is not None
        assert stream.mark is not None
        assert covered() <= stream.mark.order


def test_copies_of_parts_of_rows_are_refused(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    try:
        mysql_database.execute("SET GLOBAL binlog_row_image = 'MINIMAL'")
        with pytest.raises(StartRefusedError, match="whole rows"):
            source_of(mysql_database).begin_view([f"{mysql_database.name}.t"])
        wrong = {check.name: check for check in source_of(mysql_database).check() if not check.is_good}
        assert "binlog_row_image = FULL" in wrong["binlog_row_image"].fix
    finally:
        mysql_database.execute("SET GLOBAL binlog_row_image = 'FULL'")


@pytest.mark.parametrize("mysql_server", MYSQLS, indirect=True)
def test_without_gtids_a_reader_waits_for_those_who_write(mysql_database: MysqlDatabase) -> None:
    mysql_database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    (plan,) = planned(source_of(mysql_database), f"{mysql_database.name}.t")
    bounds = replace(Bounds.decode(plan.chunks[0][0]), gtids=None, file="binlog.000001", position=4)
    with mysql_database.connect() as writer:
        run(writer, "BEGIN")
        run(writer, "INSERT INTO t VALUES (1)")
        with pytest.raises(SourceLostError, match="were writing"):
            read(source_of(mysql_database, visible_seconds_max=0.3), plan, bounds.encode())

        def commit() -> None:
            time.sleep(0.5)
            run(writer, "COMMIT")

        thread = threading.Thread(target=commit)
        thread.start()
        assert read(source_of(mysql_database), plan, bounds.encode()).num_rows == 1
        thread.join()
