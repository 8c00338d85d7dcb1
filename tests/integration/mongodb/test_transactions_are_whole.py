"""Transactions on a real server: whole, in order, however large, however often the stream is begun again."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pymongo.write_concern import WriteConcern
from tests.integration.mongodb.reading import Read, reading
from tests.support.mongodb import MongoDatabase, NewMongo

from lowwater.errors import SourceLostError
from lowwater.records.positions import Order
from lowwater_extractor.api import SourceTransaction


def test_a_transaction_is_one_and_what_is_aborted_never_comes(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    with reading(mongo) as read:
        mongo.transaction(
            lambda s, db: (db.a.insert_one({"_id": 1}, session=s), db.b.insert_one({"_id": 1}, session=s))
        )
        with mongo.client.start_session() as session:
            session.start_transaction()
            mongo.db.a.insert_one({"_id": 2}, session=session)
            session.abort_transaction()
        mongo.db.a.insert_many([{"_id": n} for n in (3, 4)])
        mongo.db.a.delete_many({})
        found = [[(c.op, c.table, (c.after or c.before or {})["_id"]) for c in changes] for changes in read.new()]
    assert found[0] == [("c", "a", 1), ("c", "b", 1)]
    # single writes, also those of one command, are transactions of their own
    assert found[1:3] == [[("c", "a", 3)], [("c", "a", 4)]]
    assert sorted(found[3:]) == [[("d", "a", n)] for n in (1, 3, 4)]


def test_a_transaction_of_many_log_entries_comes_whole_by_way_of_the_disk(mongo: MongoDatabase, tmp_path: Path) -> None:
    """More than 16 MB, which is one entry of the log."""
    mongo.create("large")
    with reading(mongo, spill_bytes_max=1 << 20, spill_directory=str(tmp_path)) as read:
        text = "x" * 100_000

        def work(session: Any, db: Any) -> None:
            for start in range(0, 400, 50):
                db.large.insert_many([{"_id": n, "t": text} for n in range(start, start + 50)], session=session)

        mongo.transaction(work)
        found = read.transactions()
        assert [t.count for t in found] == [400]
        ids = [(read.encoders.change(frame).after or {})["_id"] for frame in found[0].changes]
        assert ids == list(range(400))
        assert list(tmp_path.glob("lowwater-spill-*/*.spill"))


def _orders(found: list[SourceTransaction]) -> list[tuple[Any, str, int]]:
    return [(t.order, t.txid, t.count) for t in found]


def _insert(documents: list[dict[str, Any]], session: Any, db: Any) -> None:
    db.a.insert_many(documents, session=session)


def test_begun_again_behind_any_poll_it_gives_exactly_the_rest(mongo: MongoDatabase) -> None:
    mongo.create("a")
    rng = random.Random(3)
    polls: list[tuple[bytes, list[Any]]] = []
    with reading(mongo, batch_documents=3) as read:
        for number in range(40):
            documents = [{"_id": f"{number}-{n}"} for n in range(rng.randrange(1, 8))]
            if rng.random() < 0.5:
                mongo.transaction(partial(_insert, documents))
            else:
                mongo.db.a.insert_many(documents)
        end = read.end
        while read.mark.order < end:
            found = _orders(read.poll())
            polls.append((read.mark.resume, found))
    everything = [one for _, found in polls for one in found]
    for stop in rng.sample(range(len(polls)), 12):
        given = [one for _, found in polls[: stop + 1] for one in found]
        with reading(mongo, resume=polls[stop][0], batch_documents=5) as again:
            rest = _orders(again.poll())
            while again.mark.order < end:
                rest += _orders(again.poll())
        last = given[-1][0] if given else Order(0, 0)
        assert [*given, *(one for one in rest if one[0] > last)] == everything, stop


@pytest.mark.timeout(180)
def test_the_primary_is_killed_and_another_goes_on(new_mongo: NewMongo) -> None:
    server = new_mongo(members=3)
    server.start()
    database = MongoDatabase(server)
    database.create("a")
    kept = database.db.get_collection("a", write_concern=WriteConcern("majority"))
    read = Read(database)
    seen: list[int] = []
    written = 0
    for _ in range(2):
        kept.insert_many([{"_id": n} for n in range(written + 1, written + 51)])
        primary = server.wait_for_primary()
        server.kill(primary)
        resume = _read_until_lost(read, seen)
        server.wait_for_primary()
        server.start_member(primary)
        written += 100
        kept.insert_many([{"_id": n} for n in range(written - 49, written + 1)])
        read = _reopen(database, resume)
        while not seen or seen[-1] < written:
            _take(read, seen)
    read.close()
    database.client.close()
    assert seen == list(range(1, written + 1)), "none lost, none twice, in order"


def _take(read: Read, seen: list[int]) -> None:
    """What was handed over before is passed over, as the publisher does."""
    found = [(read.encoders.change(f).after or {})["_id"] for t in read.poll() for f in t.changes]
    seen += [id_ for id_ in found if not seen or id_ > seen[-1]]


def _read_until_lost(read: Read, seen: list[int]) -> bytes:
    try:
        while True:
            _take(read, seen)
    except SourceLostError:
        read.close()
    return read.mark.resume


def _reopen(database: MongoDatabase, resume: bytes) -> Read:
    """As the runtime: tried again until there is a primary."""
    while True:
        try:
            return Read(database, resume=resume)
        except SourceLostError:
            continue
