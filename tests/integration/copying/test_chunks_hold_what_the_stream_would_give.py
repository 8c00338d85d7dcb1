"""A chunk's rows are, value by value, what the stream gives for them; the oldest and the newest PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.integration.copying.tables import CopiedTable, postgres_config
from tests.support.postgres import Database

from lowwater.codec.rules import ColumnRules, Mask
from lowwater.errors import CodecError, SnapshotGoneError, SourceLostError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_extractor.sources.postgres.snapshot.chunks import Bounds, BoundsKind, plan_chunks
from lowwater_extractor.sources.postgres.snapshot.copy_columns import read_planned
from lowwater_extractor.sources.postgres.snapshot.read import read_chunk

#: PostgreSQL type → values as SQL
TYPES: dict[str, list[str]] = {
    "bool": ["true", "false"],
    "int2": ["-32768", "32767", "0"],
    "int4": ["-2147483648", "2147483647"],
    "int8": ["-9223372036854775808", "9223372036854775807"],
    "oid": ["0", "4294967295"],
    "float4": ["0.1", "'NaN'", "'Infinity'", "'-Infinity'", "3.4028235e38", "1e-45", "'-0'"],
    "float8": ["0.1", "'NaN'", "'Infinity'", "'-Infinity'", "1.7976931348623157e308", "5e-324", "'-0'"],
    "numeric(10,2)": ["1.5", "-99999999.99", "0", "0.01"],
    "numeric(38,10)": ["1234567890123456789012345678.0123456789", "-1e-10"],
    "numeric(60,20)": ["1234567890123456789012345678901234567890.5", "-0.00000000000000000001"],
    "numeric(3,-2)": ["99900", "-100"],
    "numeric(2,4)": ["0.0099"],
    "numeric": ["1e50", "'NaN'", "'Infinity'", "0.1000"],
    "money": ["1234.50", "-0.01", "'92233720368547758.07'"],
    "text": ["''", "'é\u4e2d\U0001f600'", "E'a\\nb\\\\c'", "'NULL'", "repeat('x', 100000)"],
    "varchar(10)": ["'abc'", "''"],
    "char(5)": ["'ab'", "''", "'abcde'"],
    '"char"': ["'a'", "''"],
    "name": ["'x'"],
    "bytea": ["'\\x00ff'", "''", "decode(repeat('ab', 50000), 'hex')"],
    "date": ["'2026-11-16'", "'infinity'", "'-infinity'", "'0044-03-15 BC'", "'4713-01-01 BC'", "'5874897-12-31'",
             "'0001-01-01'"],
    "time": ["'00:00'", "'23:59:59.999999'"],
    "timetz": ["'12:34:56+02'"],
    "timestamp": ["'2026-11-16 11:40:15.25'", "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'0044-03-15 10:00 BC'",
                  "'294246-01-01'", "'1969-12-31 23:59:59.999999'", "'10000-01-01 00:00:00.000001'"],
    "timestamptz": ["'2026-11-16 11:40:15.25+02'", "'infinity'", "'-infinity'", "'0044-03-15 10:00 BC'",
                    "'294246-01-01'", "'1900-01-01 00:00+03:27'"],
    "interval": ["'1 year 2 mons -3 days 04:05:06.7'", "'0'"],
    "uuid": ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
    "json": ["'{\"b\": 1,  \"a\": [1, null]}'", "'null'"],
    "jsonb": ["'{\"b\": 1,  \"a\": [1, null]}'", "'\"é\"'"],
    "inet": ["'1.2.3.4'", "'1.2.3.4/24'", "'::1'"],
    "cidr": ["'10.0.0.0/8'"],
    "macaddr": ["'08:00:2b:01:02:03'"],
    "bit(3)": ["B'101'"],
    "varbit": ["B'10101'"],
    "point": ["'(1,2.5)'"],
    "int4range": ["'[1,5)'", "'empty'"],
    "tsvector": ["'a fat cat'"],
    "mood": ["'ok'", "'not ok'"],
    "pair": ["ROW(1, 'a b')", "ROW(NULL, NULL)"],
    "small": ["7"],
    "label": ["'x'"],
    "int4[]": ["'{1,NULL,3}'", "'{}'", "'[0:1]={7,8}'"],
    "text[]": ["'{a,\"b c\",NULL,\"NULL\",\"\"}'", "ARRAY['é\"\\']"],
    "numeric(6,2)[]": ["'{1.50,NULL}'"],
    "timestamp[]": ["'{2026-11-16 11:40:15.25,infinity}'"],
    "uuid[]": ["'{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}'"],
    "bool[]": ["'{t,f}'"],
    "bytea[]": ["ARRAY['\\x00ff'::bytea]"],
    "int4[][]": ["'{{1,2},{3,NULL}}'"],
    "mood[]": ["'{ok}'"],
    "small[]": ["'{1,2}'"],
}  # fmt: skip

#: since PostgreSQL 15
NEWER = ("numeric(3,-2)", "numeric(2,4)")

SETUP = """
CREATE TYPE mood AS ENUM ('ok', 'not ok');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN small AS int4 CHECK (value < 1000);
CREATE DOMAIN label AS varchar(20);
"""


def copied(table: CopiedTable, bounds: Bounds, order_by: str = "id") -> pa.Table:
    batches = list(read_chunk(table.conninfo, table.columns, bounds, table.avro, table.rules))
    return pa.Table.from_batches(batches, table.schema).sort_by(order_by)


def same(found: pa.Table, wanted: pa.Table) -> None:
    """NaN is itself here, and -0 is not 0: bits are compared."""
    assert found.schema.equals(wanted.schema, check_metadata=True)
    for name in wanted.schema.names:
        left, right = found[name].combine_chunks(), wanted[name].combine_chunks()
        assert repr(_bits(left)) == repr(_bits(right)), name


def _bits(column: pa.Array) -> list[object]:
    if pa.types.is_list(column.type):
        return [column.offsets.to_pylist(), column.is_null().to_pylist(), _bits(column.flatten())]
    for test, number in ((pa.types.is_timestamp, pa.int64()), (pa.types.is_date32, pa.int32()),
                         (pa.types.is_time, pa.int64())):  # fmt: skip
        if test(column.type):
            return list(column.view(number).to_pylist())
    return list(column.to_pylist())


@pytest.fixture
def types_table(database: Database) -> Database:
    types = {type_: values for type_, values in TYPES.items() if database.server.version > 14 or type_ not in NEWER}
    columns = ", ".join(f"c{n} {type_}" for n, type_ in enumerate(types))
    database.execute(f"{SETUP}CREATE TABLE t (id int8 PRIMARY KEY, {columns})")
    inserts = ["INSERT INTO t (id) VALUES (0)"]
    for n, (type_, values) in enumerate(types.items()):
        for number, value in enumerate(values, 1):
            inserts.append(f"INSERT INTO t (id, c{n}) VALUES ({1000 * n + number}, CAST({value} AS {type_}))")
    database.execute(";".join(inserts))
    return database


def test_every_type(types_table: Database) -> None:
    table = CopiedTable(types_table, "public.t")
    same(copied(table, Bounds("public", "t")), table.streamed("id"))


def test_every_type_as_text(types_table: Database) -> None:
    names = tuple(f"public.t.c{n}" for n in range(len(TYPES)))
    table = CopiedTable(types_table, "public.t", as_text=names)
    same(copied(table, Bounds("public", "t")), table.streamed("id"))


@pytest.mark.parametrize("mask", Mask)
def test_every_type_masked(types_table: Database, mask: Mask) -> None:
    masks = {f"public.t.c{n}": mask for n in range(len(TYPES))}
    if mask is Mask.HASH:
        masks["public.t.id"] = mask
    rules = ColumnRules(frozenset(["public.t.c3"]), {n: m for n, m in masks.items() if n != "public.t.c3"}, b"key")
    table = CopiedTable(types_table, "public.t", rules)
    assert "c3" not in table.schema.names
    wanted = table.streamed("id")
    same(copied(table, Bounds("public", "t")), wanted.sort_by("id"))


@pytest.mark.parametrize(
    ("type_", "value", "why"),
    [
        ("time", "24:00:00", "a time of day of 24:00 or more"),
        ("numeric(5,2)", "NaN", "not a number"),
        ("timestamp", "294276-12-31", "beyond 64 bits"),
    ],
)
def test_what_the_stream_refuses_is_refused_here(database: Database, type_: str, value: str, why: str) -> None:
    database.execute(f"CREATE TABLE t (id int8 PRIMARY KEY, v {type_}); INSERT INTO t VALUES (1, '{value}')")
    table = CopiedTable(database, "public.t")
    with pytest.raises(CodecError):
        table.streamed("id")
    with pytest.raises(CodecError, match=f"public.t.v.*{why}"):
        copied(table, Bounds("public", "t"))


def test_names_that_need_quotes(database: Database) -> None:
    database.execute(
        'CREATE SCHEMA "S%.""x"; CREATE TABLE "S%.""x"."T %s" ("a""b" int PRIMARY KEY, "_op" text, "é" text)'
    )
    database.execute("""INSERT INTO "S%.""x"."T %s" SELECT n, 'o', 'ü' FROM generate_series(1, 10) n""")
    table = CopiedTable(database, 'S%."x.T %s')
    with database.connect() as connection:
        [chunk] = plan_chunks(connection, 'S%."x', "T %s", ('a"b',), 100)
    assert table.schema.names == ['a"b', "_op_", "é"]
    same(copied(table, chunk.bounds, 'a"b'), table.streamed('a"b'))
    by_key = Bounds('S%."x', "T %s", BoundsKind.KEY, key=('a"b', "é"), from_key=("3", "\\'x"), to_key=("7", "z"))
    # ü is above z
    assert copied(table, by_key, 'a"b')['a"b'].to_pylist() == [3, 4, 5, 6]


def test_no_column_is_left_but_rows_are(database: Database) -> None:
    database.execute("CREATE TABLE t (a int, b text); INSERT INTO t SELECT n, 'x' FROM generate_series(1, 3) n")
    table = CopiedTable(database, "public.t", ColumnRules(mask={"public.t.a": Mask.NULL, "public.t.b": Mask.NULL}))
    assert copied(table, Bounds("public", "t"), "a").to_pylist() == [{"a": None, "b": None}] * 3


def test_a_column_that_was_dropped_since_is_null_and_another_type_needs_a_new_plan(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a int, b int); INSERT INTO t VALUES (1, 2, 3)")
    planned = CopiedTable(database, "public.t")
    database.execute("ALTER TABLE t DROP COLUMN a; ALTER TABLE t ADD COLUMN c int DEFAULT 4")
    now = CopiedTable(database, "public.t")
    [batch] = read_chunk(now.conninfo, now.columns, Bounds("public", "t"), planned.avro)
    assert batch.to_pylist() == [{"id": 1, "a": None, "b": 3}]
    database.execute("ALTER TABLE t ALTER COLUMN b TYPE text")
    now = CopiedTable(database, "public.t")
    with pytest.raises(SnapshotGoneError, match="another type"):
        list(read_chunk(now.conninfo, now.columns, Bounds("public", "t"), planned.avro))


def test_chunks_are_the_table_as_of_their_snapshot_and_none_of_it_twice(database: Database) -> None:
    database.execute("CREATE TABLE t (id int8 PRIMARY KEY, v text)")
    database.execute("INSERT INTO t SELECT n, repeat('x', 50) FROM generate_series(1, 20000) n; ANALYZE t")
    table = CopiedTable(database, "public.t")
    with database.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        [(snapshot,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        chunks = plan_chunks(connection, "public", "t", ("id",), 3000, snapshot=snapshot)
        assert len(chunks) == 7
        assert 15_000 < sum(chunk.rows_estimate for chunk in chunks) < 30_000
        database.execute(
            "DELETE FROM t WHERE id % 2 = 0; INSERT INTO t SELECT n, '' FROM generate_series(30001, 60000) n"
        )
        ids: list[int] = []
        for chunk in chunks:
            assert Bounds.decode(chunk.bounds.encode()) == chunk.bounds
            for batch in read_chunk(table.conninfo, table.columns, chunk.bounds, table.avro, batch_rows=1000):
                assert batch.num_rows <= 1000
                ids += batch["id"].to_pylist()
        assert sorted(ids) == list(range(1, 20001))
    with pytest.raises(SnapshotGoneError):
        list(read_chunk(table.conninfo, table.columns, chunks[0].bounds, table.avro))


@pytest.fixture
def planned(database: Database) -> Iterator[tuple[Database, list[Chunk], str]]:
    """A table in three chunks under a snapshot that is kept; and its Avro schema."""
    database.execute("CREATE TABLE t (id int8 PRIMARY KEY, a text, b text)")
    database.execute("INSERT INTO t SELECT n, 'a' || n, 'b' || n FROM generate_series(1, 3000) n; ANALYZE t")
    table = CopiedTable(database, "public.t")
    at = Order.mark(1)
    with database.connect() as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        [(snapshot,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        found = plan_chunks(connection, "public", "t", ("id",), 1000, snapshot=snapshot)
        chunks = [
            Chunk("pg", "c", "public.t", n, len(found), 7, chunk.bounds.encode(), at, at, chunk.rows_estimate)
            for n, chunk in enumerate(found, 1)
        ]
        assert len(chunks) == 3
        yield database, chunks, table.avro


def read_all(database: Database, chunks: list[Chunk], avro: str) -> list[dict[str, object]]:
    config = postgres_config(database, ["*.*"])
    rows: list[dict[str, object]] = []
    for chunk in chunks:
        for batch in read_planned(config, "pg", chunk, avro, ColumnRules()):
            rows += batch.to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


def test_columns_that_got_other_names_since_are_read_by_the_old_ones(
    planned: tuple[Database, list[Chunk], str],
) -> None:
    before = read_all(*planned)
    assert len(before) == 3000
    # nothing that was planned holds it up
    planned[0].execute("""
    SET lock_timeout = '2s';
    ALTER TABLE t RENAME COLUMN a TO c; ALTER TABLE t RENAME COLUMN b TO a; ALTER TABLE t RENAME COLUMN c TO b;
    ALTER TABLE t ADD COLUMN d int DEFAULT 1""")
    assert read_all(*planned) == before


@pytest.mark.parametrize("how", ["VACUUM FULL t", "ALTER TABLE t ALTER COLUMN id TYPE int4", "TRUNCATE t"])
def test_a_table_that_was_rewritten_since_needs_a_new_plan(
    planned: tuple[Database, list[Chunk], str], how: str
) -> None:
    planned[0].execute("UPDATE t SET a = 'x' WHERE id % 2 = 0")
    with planned[0].connect() as connection:
        connection.execute("SET lock_timeout = '2s'")
        connection.execute(how.encode())
    with pytest.raises(SnapshotGoneError, match="has changed since the copy was planned"):
        read_all(*planned)


def test_partitions_and_heirs(database: Database) -> None:
    database.execute("""
    CREATE TABLE p (id int, at int, v text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at);
    CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10);
    CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (at);
    CREATE TABLE p21 (v text, at int NOT NULL, id int NOT NULL);
    ALTER TABLE p2 ATTACH PARTITION p21 FOR VALUES FROM (10) TO (20);
    CREATE TABLE p22 PARTITION OF p2 FOR VALUES FROM (20) TO (30);
    INSERT INTO p SELECT n, n % 30, 'v' || n FROM generate_series(1, 9000) n;
    CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child () INHERITS (parent);
    INSERT INTO parent VALUES (1); INSERT INTO child VALUES (2);
    CREATE TABLE bare (id int) PARTITION BY RANGE (id);
    """)
    table = CopiedTable(database, "public.p")
    with database.connect() as connection:
        chunks = plan_chunks(connection, "public", "p", ("id", "at"), 1500)
        assert {chunk.bounds.table for chunk in chunks} == {"p1", "p21", "p22"}
        assert len(chunks) >= 6
        parts = [copied(table, chunk.bounds) for chunk in chunks]
        same(pa.concat_tables(parts).sort_by("id"), table.streamed("id"))
        [own] = plan_chunks(connection, "public", "parent", ("id",), 10)
        assert copied(CopiedTable(database, "public.parent"), own.bounds).to_pylist() == [{"id": 1}]
        [empty] = plan_chunks(connection, "public", "bare", (), 10)
        assert copied(CopiedTable(database, "public.bare"), empty.bounds).num_rows == 0


def test_an_empty_table_is_one_chunk_and_a_view_is_cut_by_its_key(database: Database) -> None:
    database.execute("""
    CREATE TABLE t (id int PRIMARY KEY, v text);
    CREATE TABLE big (id int8, v text); INSERT INTO big SELECT n * 3, 'v' FROM generate_series(-5000, 5000) n;
    INSERT INTO big VALUES (NULL, 'null'); ANALYZE big;
    CREATE VIEW seen AS SELECT * FROM big; CREATE VIEW texts AS SELECT id::text, v FROM big
    """)
    with database.connect() as connection:
        [chunk] = plan_chunks(connection, "public", "t", ("id",), 10)
        assert chunk.rows_estimate == 0
        assert copied(CopiedTable(database, "public.t"), chunk.bounds).num_rows == 0
        chunks = plan_chunks(connection, "public", "seen", ("id",), 2000)
        table = CopiedTable(database, "public.big")
        found = [copied(table, chunk.bounds)["id"].to_pylist() for chunk in chunks]
        assert len(found) == 6
        assert all(len(ids) > 1000 for ids in found)
        every = [id_ for ids in found for id_ in ids]
        assert every.count(None) == 1
        assert sorted(id_ for id_ in every if id_ is not None) == [n * 3 for n in range(-5000, 5001)]
        assert len(plan_chunks(connection, "public", "texts", ("id",), 2000)) == 1


def test_errors_have_names(database: Database) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    table = CopiedTable(database, "public.t")
    with pytest.raises(SnapshotGoneError):
        copied(table, Bounds("public", "t", snapshot="00000003-0000001B-1"))
    with pytest.raises(SnapshotGoneError, match="not exist"):
        copied(table, Bounds("public", "nothing"))
    with pytest.raises(SourceLostError):
        list(read_chunk("host=127.0.0.1 port=1", table.columns, Bounds("public", "t"), table.avro))
