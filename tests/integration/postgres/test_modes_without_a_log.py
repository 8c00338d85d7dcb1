"""An overlap for late rows, and whole tables: the modes without a log on a real database."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from tests.integration.postgres.reading import source_of
from tests.integration.postgres.syncing import syncing
from tests.support.postgres import Database
from tests.support.versions import Versions

from lowwater.codec.avro import change_schema
from lowwater.codec.rules import ColumnRules
from lowwater.errors import StartRefusedError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.api import WindowStream

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

#: type → the bound, a row that is late, one that is too late, the next row, and the overlap
LATE: dict[str, tuple[str, str, str, str, float]] = {
    "timestamptz": ("2020-01-01 10:00+00", "2020-01-01 09:59:55+00", "2020-01-01 09:00+00", "2020-01-01 10:01+00", 10),
    "timestamp": ("2020-01-01 10:00", "2020-01-01 09:59:55", "2020-01-01 09:00", "2020-01-01 10:01", 10),
    "date": ("2020-01-10", "2020-01-10", "2020-01-02", "2020-01-11", 86_400),
    "int4": ("100", "95", "80", "101", 10),
    "numeric": ("100.5", "95", "80", "101", 10.5),
    "float8": ("100", "95", "80", "101", 10),
}


@newest
@pytest.mark.parametrize("type_", LATE)
def test_late_rows_come_with_the_next_sync_if_the_overlap_reaches_them(database: Database, type_: str) -> None:
    first, late, too_late, next_, overlap = LATE[type_]
    database.execute(f"CREATE TABLE t (id int PRIMARY KEY, stamp {type_})")
    database.execute(f"INSERT INTO t VALUES (1, '{first}')")
    cursor: dict[str, Any] = {"public.t": {"primary": "stamp", "overlap": overlap}}
    with syncing(database, cursor) as read:
        assert [row["id"] for row in read.rows()] == [1]
        database.execute(f"INSERT INTO t VALUES (2, '{late}'), (3, '{too_late}'), (4, '{next_}')")
        assert sorted(row["id"] for row in read.rows()) == [1, 2, 4], "and the row at the bound comes again"


@newest
def test_an_overlap_of_a_text_is_refused(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, stamp text)")
    cursors = {"public.t": {"primary": "stamp", "overlap": 5}}
    source = source_of(database, mode="incremental", tables=["public.t"], cursors=cursors)
    with pytest.raises(StartRefusedError, match=r"overlap: public\.t\.stamp is a text"):
        source.stream({}, {}, Versions())


@newest
def test_a_full_refresh_needs_no_slot_and_reads_all_under_one_snapshot(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 100) n")
    source = source_of(database, mode="full_refresh", tables=["public.t"])
    assert [check.name for check in source.check()] == ["connection", "version", "encoding", "tables", "select"]
    assert [table.full_name for table in source.tables_to_copy()] == ["public.t"]
    stream = source.stream({}, {}, Versions())
    assert isinstance(stream, WindowStream)
    assert stream.poll(frozenset()).transactions == []
    view = source.begin_view(["public.t"])
    (planned,) = view.plan(10)
    assert planned.at is None
    database.execute("DELETE FROM t")
    avro, at, rows = json.dumps(change_schema(planned.table)), Order(0, 0), 0
    for number, (bounds, _) in enumerate(planned.chunks, 1):
        chunk = Chunk(source.name, "c", "public.t", number, len(planned.chunks), 1, bounds, at, at, 0, "")
        rows += pa.Table.from_batches(list(source.read_chunk(chunk, avro, ColumnRules()))).num_rows
    view.close()
    assert rows == 100
    assert database.execute("SELECT * FROM pg_replication_slots WHERE database = current_database()") == []
