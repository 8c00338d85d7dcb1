"""Every recovery row of seed document 001 for MongoDB, on a real server, in lowwater's own ways.

There each collection's state holds `_data`, and `next_data` while something is not committed. Here one position for
all collections lies in Kafka, in the same Kafka transaction as the changes: `_data` always lies before what is not
whole, `next_data` says how far was read, and neither can disagree with the data. What remains of each row:

    1  before the commit        killed with the position produced and not committed
    2  after the commit         `_data` follows, and `next_data` is gone
    3  the commit failed        killed with the batch produced: read again from `_data`
    4  already committed        killed with the batch committed: passed over
    5  not committed            killed with a part of a large transaction committed: gone on behind it, to a new end
    6  mixed states             one collection is captured from now on only, the other all along
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from lowwater.records.positions import Order
from lowwater.records.types import Position
from lowwater_devkit.servers.mongodb import EmbeddedMongo
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from tests.support.harness import Fleet, wait_until
from tests.support.mongodb import MongoDatabase, source_config
from tests.support.mongodb_fleet import mongo_fleet
from tests.support.recovery_rows import BATCH, LARGE, Published

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


class Books(Published):
    """Each transaction counts one up, and writes some documents under that number."""

    def __init__(self, fleet: Fleet, database: MongoDatabase) -> None:
        super().__init__(fleet)
        self.database = database
        database.db.counter.insert_one({"_id": 1, "n": 0})
        self.documents: dict[int, int] = {}
        self.singles = 0

    def write(self, transactions: int = 1, documents: int = 2) -> None:
        for _ in range(transactions):

            def work(session: Any, db: Any) -> int:
                after = db.counter.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}, session=session)
                db.ledger.insert_many([{"n": after["n"]} for _ in range(documents)], session=session)
                return int(after["n"])

            self.documents[self.database.transaction(work)] = documents + 1

    def wait_for_all(self) -> None:
        """Every transaction once, with all its changes: none is lost, none is there twice, none is torn."""
        wanted = sorted([*self.documents.values(), *[1] * self.singles])
        assert sorted(commit.changes for commit in self.wait_for(len(wanted))) == wanted

    def resume(self, position: Position) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(position.threads[0].resume)
        return found

    def kill_at(self, point: str) -> Position:
        left = super().kill_at(point)
        assert left.threads[0].mark == Order.mark(self.resume(left)["time"]), "read again from what is marked"
        return left


@pytest.fixture(scope="module")
def kept(
    mongo_server: EmbeddedMongo, kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Books]:
    """One database and one changes topic for all rows, one after the other: starts are what takes time here."""
    database = MongoDatabase(mongo_server)
    database.create("counter", "ledger", "other")
    name = f"t{uuid.uuid4().hex[:10]}"
    tables = [f"{database.name}.counter", f"{database.name}.ledger"]
    directory = tmp_path_factory.mktemp("rows")
    fleet = mongo_fleet(directory, kafka.bootstrap_servers, name, database, lake=False, batch=BATCH, tables=tables)
    books = Books(fleet, database)
    fleet.extractor()
    fleet.wait_for_capture()
    books.write(5)
    books.wait_for_all()
    yield books
    fleet.kill_all()
    database.drop()


@pytest.fixture
def books(kept: Books) -> Books:
    """All that was written has come through, and no extractor is running."""
    kept.fleet.kill_all()
    kept.fence()
    return kept


def test_row_1_what_was_not_committed_was_never_there(books: Books) -> None:
    books.write(40)
    left = books.kill_at("extractor.position_produced")
    assert len(books.commits()) < len(books.documents)
    assert left.in_progress is None
    books.fleet.extractor()
    books.wait_for_all()


def test_row_2_the_token_follows_what_is_committed(books: Books) -> None:
    before = books.resume(books.fleet.position())
    books.write(40)
    books.fleet.extractor()
    books.wait_for_all()
    published = books.commits()[-1].order.major
    wait_until("the token to follow", lambda: books.resume(books.fleet.position())["time"] >= published)
    after = books.resume(books.fleet.position())
    assert after["_data"] > before["_data"]
    assert "next_data" not in after


def test_row_3_a_commit_that_failed_is_read_again(books: Books) -> None:
    books.write(40)
    before = books.resume(books.fleet.position())
    left = books.kill_at("extractor.batch_produced")
    assert books.resume(left)["_data"] >= before["_data"]
    assert len(books.commits()) < len(books.documents)
    books.fleet.extractor()
    books.wait_for_all()


def test_row_4_what_is_committed_already_is_passed_over(books: Books) -> None:
    books.write(40)
    before = len(books.commits())
    books.kill_at("extractor.committed")
    assert len(books.commits()) > before
    books.fleet.extractor()
    books.wait_for_all()


def test_row_5_a_part_that_is_committed_is_gone_on_behind_and_then_to_a_new_end(books: Books) -> None:
    books.write(1, documents=LARGE)
    left = books.kill_at("extractor.prefix_committed")
    part = left.in_progress
    assert part is not None
    assert 0 < part.changes < LARGE
    assert books.resume(left)["time"] < part.order.major, "it would not come again"
    books.write(10)
    books.fleet.extractor()
    books.wait_for_all()


def test_row_6_a_collection_that_is_captured_from_now_on_does_not_disturb_the_others(books: Books) -> None:
    books.database.db.other.insert_one({"_id": "before"})
    books.write(20)
    service = books.fleet.extractor()
    books.wait_for_all()
    service.kill()
    books.write(20)
    books.kill_at("extractor.committed")
    books.fleet.change_source(config=source_config(books.database, tables=[f"{books.database.name}.*"]))
    books.fleet.extractor()
    books.write(20)
    books.database.db.other.insert_one({"_id": "after"})
    # what it had before is older than the position
    books.singles += 1
    books.wait_for_all()
