"""Every recovery row of seed document 001 for PostgreSQL, on a real server, in lowwater's own ways.

There a state file holds `lsn`, `next_cdc_pos` and the streams that are `processing`. Here the position lies in Kafka,
in the same Kafka transaction as the changes: what was not committed has never been there, and no position beside the
data could say otherwise. The server is told only what Kafka holds. What remains of each row is tested here:

    1  before the commit        killed with the position produced and not committed
    2  after the commit         the slot follows the position
    3  partial commit           killed with a part of a large transaction committed
    4  all committed            killed with the batch committed and the server not told
    5  bounded recovery         killed again and again: each time only what Kafka does not hold is published
    6  stream not found         the table of a transaction in progress is no longer captured, or no longer there

`test_postgres_is_copied_on_s3.py` and `test_tables_are_rewritten_while_they_are_copied.py` have the same for copies.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator

import pytest

from lowwater.records.types import Abandon, Commit, Position
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_extractor.sources.postgres.position import Resume
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, parse_lsn
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import wait_until
from tests.support.postgres import Database
from tests.support.postgres_books import Books
from tests.support.postgres_fleet import source_config
from tests.support.recovery_rows import BATCH, LARGE, Published

pytestmark = pytest.mark.parametrize("postgres_server", [18], indirect=True)


@pytest.fixture(scope="module")
def kept(
    postgres_server: EmbeddedPostgres, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Books]:
    """One database and one changes topic for all rows, one after the other: starts are what takes time here."""
    database = Database(postgres_server)
    made = Books(tmp_path_factory.mktemp("rows"), kafka, f"t{uuid.uuid4().hex[:10]}", database, batch=BATCH)
    made.fleet.extractor()
    made.fleet.wait_for_capture()
    made.write(5)
    _wait_for_all(made)
    yield made
    made.fleet.kill_all()
    database.drop()


@pytest.fixture
def books(kept: Books) -> Books:
    """All that was written has come through, and no extractor is running. There is no merger before the last test."""
    kept.fleet.kill_all()
    Published(kept.fleet).fence()
    return kept


def _wait_for_all(books: Books) -> None:
    Published(books.fleet).wait_for(books.count())


def _resume(position: Position) -> Lsn:
    return Resume.unpack(position.threads[0].resume).lsn


def _last_commit(books: Books) -> Lsn:
    """Behind all that has been written up to now."""
    ((lsn,),) = books.database.execute("SELECT pg_current_wal_insert_lsn()::text")
    return parse_lsn(lsn)


def _kill_at(books: Books, point: str) -> Position:
    left = Published(books.fleet).kill_at(point)
    assert books.confirmed() <= _resume(left), "acknowledged before it was durable"
    return left


def _wait_for_more(books: Books, count: int) -> None:
    wanted = books.count() + count
    wait_until(f"transaction {wanted}", lambda: books.count() >= wanted)


def test_row_1_what_was_not_committed_was_never_there(books: Books) -> None:
    books.write(40)
    left = _kill_at(books, "extractor.position_produced")
    assert len(Published(books.fleet).commits()) < books.count()
    assert books.confirmed() < _last_commit(books)
    assert left.in_progress is None
    books.fleet.extractor()
    _wait_for_all(books)


def test_row_2_the_slot_follows_what_is_committed(books: Books) -> None:
    books.write(40)
    books.fleet.extractor()
    _wait_for_all(books)
    published = books.fleet.position().threads[0].published.major
    wait_until("the slot to follow", lambda: books.confirmed() >= published)
    assert books.confirmed() <= _resume(books.fleet.position())


def test_row_3_a_part_that_is_committed_is_gone_on_behind(books: Books) -> None:
    with books.database.connect() as connection, connection.transaction():
        ((n,),) = connection.execute("UPDATE counter SET n = n + 1 RETURNING n").fetchall()
        connection.execute("INSERT INTO ledger (n) SELECT %s FROM generate_series(1, %s)", (n, LARGE))
    left = _kill_at(books, "extractor.prefix_committed")
    part = left.in_progress
    assert part is not None
    assert 0 < part.changes < LARGE
    assert books.confirmed() < part.order.major, "it would not come again"
    books.fleet.extractor()
    _wait_for_all(books)
    # what was there is not published again: the update, the inserts and the commit, each once
    assert len(Published(books.fleet).records(left, part)) == 1 + LARGE + 1


def test_row_4_what_is_committed_and_not_acknowledged_is_passed_over(books: Books) -> None:
    books.write(40)
    before = len(Published(books.fleet).commits())
    published = _kill_at(books, "extractor.committed").threads[0].published
    assert len(Published(books.fleet).commits()) > before
    assert books.confirmed() < published.major, "the server does not know that yet"
    books.fleet.extractor()
    _wait_for_all(books)
    wait_until("the slot to follow", lambda: books.confirmed() >= published.major)


def test_row_5_only_what_kafka_does_not_hold_is_published(books: Books) -> None:
    with books.written():
        for point in ("extractor.batch_produced", "extractor.committed", "extractor.acknowledged"):
            before = len(Published(books.fleet).commits())
            _wait_for_more(books, 40)
            _kill_at(books, point)
            assert len(Published(books.fleet).commits()) >= before
        # it goes on from there, while more come
        books.fleet.extractor()
        wait_until("some of the rest", lambda: len(Published(books.fleet).commits()) > before + 40)
    _wait_for_all(books)


@pytest.mark.parametrize("how", ["taken out of the config", "dropped"])
def test_row_6_a_table_that_is_no_longer_captured_holds_nothing_up(books: Books, how: str) -> None:
    """The log has its changes as they were when it was captured: the one in progress is ended, none begins."""
    books.database.execute("CREATE TABLE old (id int PRIMARY KEY)")
    books.fleet.change_source(config=source_config(books.database))
    first = books.fleet.extractor()
    wait_until("capture of it", lambda: (first.status() or {}).get("state") == "running")
    first.stop()
    books.database.execute(f"INSERT INTO old SELECT generate_series(1, {LARGE})")
    left = _kill_at(books, "extractor.prefix_committed")
    part = left.in_progress
    assert part is not None
    if how == "taken out of the config":
        books.fleet.change_source(config=source_config(books.database, tables=["public.counter", "public.ledger"]))
        extractor = books.fleet.extractor()
        wait_until("the second session", lambda: (extractor.status() or {}).get("state") == "running")
        books.database.execute("INSERT INTO old VALUES (0)")
    books.database.execute("DROP TABLE old")
    books.write(3)
    if how == "dropped":
        extractor = books.fleet.extractor()
    wait_until("the slot to follow", lambda: books.confirmed() >= _last_commit(books))
    assert books.fleet.position().in_progress is None
    kinds = Counter(map(books.fleet.codec.record_type, Published(books.fleet).records(left, part)))
    assert kinds[Commit] + kinds[Abandon] == 1, kinds
    _wait_for_all(books)
    assert extractor.is_running


def test_all_rows_together_are_whole_and_in_order_behind_a_merger(books: Books) -> None:
    books.fleet.extractor()
    books.fleet.merger()
    print(f"{books.assert_whole()} transactions: 0 lost, 0 twice")
