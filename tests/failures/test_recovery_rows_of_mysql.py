"""Every recovery row of seed document 001 for MySQL, on a real server, in lowwater's own ways.

There a state file holds `position`, `next_cdc_pos` and the streams that are `processing`. Here one position for all
tables lies in Kafka, in the same Kafka transaction as the changes of all of them: no table can be ahead of another, and
what was not committed has never been there. What remains of each row is tested here:

    1  before the commit        killed with the position produced and not committed
    2  after the commit         the position follows, and names the server's own log
    3  partial commit           killed with a part of a large transaction over two tables committed
    4  all committed            killed with the batch committed, before anything else is done: passed over
    5  bounded recovery         killed again and again: each time only what Kafka does not hold is published;
                                also with a table that is no longer captured, or no longer there
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from lowwater.records.types import Abandon, Commit, Position
from lowwater_devkit.servers.mysql import EmbeddedMysql
from lowwater_devkit.servers.mysql_install import FLAVOURS, Flavour
from lowwater_extractor.sources.mysql.position import Place, Resume
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import wait_until
from tests.support.mysql import MysqlDatabase, run
from tests.support.mysql_books import Books
from tests.support.recovery_rows import BATCH, LARGE, Published

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


@pytest.fixture(scope="module", params=FLAVOURS)
def kept(
    request: pytest.FixtureRequest,
    mysql_servers: Callable[[Flavour], EmbeddedMysql],
    kafka: EmbeddedKafka,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Books]:
    """One database and one changes topic for all rows, one after the other: starts are what takes time here."""
    database = MysqlDatabase(mysql_servers(request.param))
    directory, name = tmp_path_factory.mktemp("rows"), f"t{uuid.uuid4().hex[:10]}"
    made = Books(directory, kafka.bootstrap_servers, name, database, batch=BATCH)
    made.fleet.extractor()
    made.fleet.wait_for_capture()
    made.write(5)
    Published(made.fleet).wait_for(5)
    yield made
    made.fleet.kill_all()
    database.drop()


@pytest.fixture
def books(kept: Books) -> Books:
    """All that was written has come through, and no extractor is running. There is no merger before the last test."""
    kept.fleet.kill_all()
    Published(kept.fleet).fence()
    return kept


def _place(position: Position) -> Place:
    return Resume.unpack(position.threads[0].resume).place


def _write_large(books: Books) -> None:
    """One transaction over both tables."""
    with books.database.connect() as connection:
        run(connection, "BEGIN")
        run(connection, "UPDATE counter SET n = n + 1")
        for _ in range(LARGE):
            run(connection, "INSERT INTO ledger (n, note) SELECT n, 'é' FROM counter")
        run(connection, "COMMIT")


def test_row_1_what_was_not_committed_was_never_there(books: Books) -> None:
    books.write(40)
    published = Published(books.fleet)
    left = published.kill_at("extractor.position_produced")
    assert len(published.commits()) < books.count()
    assert left.in_progress is None
    books.fleet.extractor()
    published.wait_for(books.count())


def test_row_2_the_position_follows_what_is_committed(books: Books) -> None:
    before = _place(books.fleet.position())
    books.write(40)
    books.fleet.extractor()
    last = Published(books.fleet).wait_for(books.count())[-1]
    wait_until("the position", lambda: books.fleet.position().threads[0].mark >= last.order)
    left = books.fleet.position()
    assert _place(left).order > before.order
    assert left.in_progress is None


def test_row_3_a_part_that_is_committed_is_gone_on_behind(books: Books) -> None:
    before = books.fleet.position()
    _write_large(books)
    published = Published(books.fleet)
    left = published.kill_at("extractor.prefix_committed")
    part = left.in_progress
    assert part is not None
    assert 0 < part.changes < LARGE
    assert _place(left).order >= _place(before).order
    assert left.threads[0].mark < part.order, "it would not come again"
    books.write(10)
    books.fleet.extractor()
    published.wait_for(books.count())
    # what was there is not published again: the update, the inserts and the commit, each once
    assert len(published.records(left, part)) == 1 + LARGE + 1


def test_row_4_what_is_committed_already_is_passed_over(books: Books) -> None:
    books.write(40)
    published = Published(books.fleet)
    before = len(published.commits())
    published.kill_at("extractor.committed")
    assert len(published.commits()) > before
    books.fleet.extractor()
    published.wait_for(books.count())


def test_row_5_only_what_kafka_does_not_hold_is_published(books: Books) -> None:
    published = Published(books.fleet)
    with books.written():
        for point in ("extractor.batch_produced", "extractor.committed", "extractor.acknowledged"):
            before, wanted = len(published.commits()), books.count() + 40
            wait_until(f"transaction {wanted}", lambda: books.count() >= wanted)  # noqa: B023
            published.kill_at(point)
            assert len(published.commits()) >= before
        # it goes on from there, while more come
        books.fleet.extractor()
        wait_until("some of the rest", lambda: len(published.commits()) > before + 40)
    published.wait_for(books.count())


@pytest.mark.parametrize("how", ["taken out of the config", "dropped"])
def test_row_5_a_table_that_is_no_longer_captured_holds_nothing_up(books: Books, how: str) -> None:
    """The transaction in progress is ended, one way or the other, and none of the others waits for it."""
    books.database.execute("CREATE TABLE old (id int AUTO_INCREMENT PRIMARY KEY)")
    books.fleet.change_source(config=books.config())
    first = books.fleet.extractor()
    wait_until("capture of it", lambda: (first.status() or {}).get("state") == "running")
    first.stop()
    published = Published(books.fleet)
    books.database.execute(f"INSERT INTO old (id) VALUES {', '.join(f'({n})' for n in range(1, LARGE + 1))}")
    left = published.kill_at("extractor.prefix_committed")
    part = left.in_progress
    assert part is not None
    if how == "taken out of the config":
        name = books.database.name
        books.fleet.change_source(config=books.config(tables=[f"{name}.counter", f"{name}.ledger"]))
    else:
        books.database.execute("DROP TABLE old")
    extractor = books.fleet.extractor()
    books.write(3)
    ended = lambda: books.fleet.position().in_progress is None  # noqa: E731
    wait_until(f"the part to be ended; {books.fleet.log_tails()}", ended)
    wait_until("the rest", lambda: books.count() <= len(_counted(books)))
    kinds = Counter(map(books.fleet.codec.record_type, published.records(left, part)))
    assert kinds[Commit] + kinds[Abandon] == 1, kinds
    assert extractor.is_running
    books.database.execute("DROP TABLE IF EXISTS old")


def _counted(books: Books) -> list[Commit]:
    """Of the transactions that count one up: the others are about a table that comes and goes."""
    return [commit for commit in Published(books.fleet).commits() if commit.changes != LARGE]


def test_all_rows_together_are_whole_and_in_order_behind_a_merger(books: Books) -> None:
    books.fleet.extractor()
    books.fleet.merger()
    print(f"{books.assert_whole()} transactions: 0 lost, 0 twice")
