"""Many small transactions, one that is very large, and thousands of tables, through extractor and merger."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from tests.support.harness import Fleet, wait_until
from tests.support.memory import Peak
from tests.support.postgres import Database, NewPostgres
from tests.support.postgres_fleet import postgres_fleet

from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer
from lowwater.records.codec import decode_commit
from lowwater.records.types import Commit
from lowwater.records.wire import HEADER_SIZE
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_devkit.verify.history import Decoder
from lowwater_devkit.verify.ordered_topic import Ordered
from lowwater_fleet.kafka.embedded import EmbeddedKafka

newest = pytest.mark.parametrize("postgres_server", [18], indirect=True)

CLIENTS, RATE, SECONDS = 4, 1_000, 10
#: each client counts its own
_TICK = "\\set n :n + 1\nINSERT INTO ticks VALUES (:client_id, :n);\n"


@pytest.fixture
def new_postgres_fleet(kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Any]:
    made: list[Fleet] = []

    def make(database: Database, **options: Any) -> Fleet:
        made.append(postgres_fleet(tmp_path, kafka.bootstrap_servers, unique, database, **options))
        return made[-1]

    yield make
    for fleet in made:
        fleet.kill_all()


def _tick(database: Database, script: Path) -> float:
    """So many transactions of one row a second, for some seconds; the rate that the server came to."""
    script.write_text(_TICK)
    where = ["-h", "127.0.0.1", "-p", str(database.server.port), "-U", "postgres"]
    what = ["-n", "-f", str(script), "-D", "n=0", "-c", str(CLIENTS), "-j", "1", "-R", str(RATE), "-T", str(SECONDS)]
    began = time.monotonic()
    subprocess.run(
        [str(EmbeddedPostgres.bin("pgbench")), *where, *what, database.name], check=True, capture_output=True
    )
    ((count,),) = database.execute("SELECT count(*) FROM ticks")
    return float(count) / (time.monotonic() - began)


def _ordered(fleet: Fleet, count: int) -> list[Ordered]:
    found: list[Ordered] = []

    def are_there() -> bool:
        found[:] = fleet.ordered()
        return len(found) >= count

    wait_until(f"{count} transactions; {fleet.log_tails()}", are_there)
    return found


@newest
def test_a_thousand_transactions_a_second_of_one_row_each(
    database: Database, new_postgres_fleet: Any, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE ticks (client int, n int, PRIMARY KEY (client, n))")
    fleet: Fleet = new_postgres_fleet(database, lake=False)
    fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    rate = _tick(database, tmp_path / "tick.sql")
    ((count,),) = database.execute("SELECT count(*) FROM ticks")
    ordered = _ordered(fleet, count)
    print(f"{count} transactions, {rate:.0f} a second")
    assert [one.gsn for one in ordered] == list(range(1, count + 1))
    assert not [one for one in ordered if one.torn or len(one.values) != 1]
    orders = [one.commit.order for one in ordered if one.commit]
    assert orders == sorted(set(orders))
    decode, last = Decoder(fleet.store), dict.fromkeys(range(CLIENTS), 0)
    for one in ordered:
        client, n = decode(one.values[0])[3]
        assert n == last[client] + 1, f"client {client}: {n} behind {last[client]}"
        last[client] = n
    assert sum(last.values()) == count


# -- a very large one --------------------------------------------------------------------------------------

LARGE_ROWS = 5_000_000
MEGABYTES_MAX = 400


def _large(database: Database, rows: int) -> None:
    """In one transaction, with a part in its middle that is rolled back."""
    insert = "INSERT INTO large SELECT n, md5(n::text) FROM generate_series(%s::int, %s::int) n"
    with database.connect() as connection, connection.transaction():
        connection.execute(insert, (1, rows // 2))
        with connection.transaction(force_rollback=True):
            connection.execute(insert, (rows + 1, rows + rows // 50))
        connection.execute(insert, (rows // 2 + 1, rows))


def _changes_and_commit(fleet: Fleet) -> tuple[int, int, Commit]:
    """Count and checksum of the changes in the topic, and what their commit says; none of it is kept in memory."""
    commit_header, change_headers = fleet.codec.headers["Commit"], set(fleet.codec.headers.values())
    source = fleet.sources[0]
    starts = {(topics.changes(source), p): low for p, (low, _) in fleet.offsets().items()}
    reader = AssignedConsumer(fleet.settings.kafka, "test", starts)
    count = checksum = 0
    deadline = time.monotonic() + 120
    try:
        while time.monotonic() < deadline:
            for message in reader.consume(10_000, 1.0):
                value = message.value() or b""
                if value[:HEADER_SIZE] == commit_header:
                    return count, checksum, decode_commit(value)
                if value[:HEADER_SIZE] not in change_headers:
                    count += 1
                    checksum += crc32(value)
    finally:
        reader.close()
    raise AssertionError(f"no commit behind {count} changes; {fleet.log_tails()}")


@newest
@pytest.mark.parametrize("rows", [200_000, pytest.param(LARGE_ROWS, marks=pytest.mark.long)])
@pytest.mark.timeout(1800)
def test_a_very_large_transaction_fits_into_little_memory(
    database: Database, new_postgres_fleet: Any, tmp_path: Path, rows: int
) -> None:
    database.execute("CREATE TABLE large (id int PRIMARY KEY, body text)")
    settings = {"spill_bytes_max": 4 << 20} if rows < LARGE_ROWS else {}
    fleet: Fleet = new_postgres_fleet(database, lake=False, spill_directory=str(tmp_path), **settings)
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    peak = Peak(extractor)
    before = peak.megabytes
    _large(database, rows)
    wait_until("its commit", lambda: (extractor.status() or {}).get("transactions") == 1, 1200)
    print(f"{rows} rows: {before:.0f} MB before, {peak.megabytes:.0f} MB at the peak")
    assert peak.megabytes < MEGABYTES_MAX
    count, checksum, commit = _changes_and_commit(fleet)
    assert (count, checksum) == (commit.changes, commit.checksum)
    assert count == rows


# -- thousands of tables -----------------------------------------------------------------------------------

TABLES = 10_000
#: in pieces: each table is locked until its transaction ends
_MAKE = """
DO $$ BEGIN
    FOR t IN 1..{tables} LOOP
        EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, a int)', t);
        IF t % 500 = 0 THEN COMMIT; END IF;
    END LOOP;
END $$"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_ten_thousand_tables(new_postgres: NewPostgres, new_postgres_fleet: Any) -> None:
    """Captured, a few of them changed, and all of them planned to be copied, on a server as it comes."""
    server = new_postgres(settings={"fsync": "off"})
    server.start()
    database = Database(server)
    database.execute(_MAKE.format(tables=TABLES))
    fleet: Fleet = new_postgres_fleet(database)
    began = time.monotonic()
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    captured = time.monotonic() - began
    peak = Peak(extractor)
    wanted = [1, TABLES // 2, TABLES]
    for t in wanted:
        database.execute(f"INSERT INTO t{t} VALUES ({t}, 1)")
    decode = Decoder(fleet.store)
    ordered = _ordered(fleet, len(wanted))
    streamed = time.monotonic() - began
    assert [decode(one.values[0])[1:] for one in ordered] == [[f"public.t{t}", None, [t, 1]] for t in wanted]
    fleet.wait_for_status(extractor, "all to be planned", lambda s: s["copies"].get("tables") == TABLES, 600)
    planned = time.monotonic() - began
    print(
        f"{TABLES} tables: captured after {captured:.1f} s, streamed after {streamed:.1f} s, "
        f"all copies planned after {planned:.1f} s; peak {peak.megabytes:.0f} MB"
    )
    database.execute(f"UPDATE t{TABLES} SET a = 2")
    assert decode(_ordered(fleet, len(wanted) + 1)[-1].values[0])[3] == [TABLES, 2]
