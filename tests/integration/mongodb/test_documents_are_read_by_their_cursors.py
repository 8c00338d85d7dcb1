"""The mode `incremental`: equal values, nulls, late ones, several types, and a stop in the middle."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from tests.integration.mongodb.reading import source_of
from tests.support.mongodb import MongoDatabase
from tests.support.versions import Versions

from lowwater.errors import StartRefusedError
from lowwater_extractor.api import SourceTransaction, ThreadMark
from lowwater_extractor.incremental.stream import IncrementalStream, UpperBounds

WAIT_SECONDS = 30.0


class Syncs:
    """A stream whose every mark is durable at once."""

    def __init__(self, mongo: MongoDatabase, primary: str, resume: bytes | None, **settings: Any) -> None:
        name = f"{mongo.name}.t"
        config = {
            "mode": "incremental", "tables": [name], "cursors": {name: {"primary": primary}}, "poll_seconds": 0.001,
            "settle_seconds": 0, **settings,
        }  # fmt: skip
        self.encoders = Versions()
        stream = source_of(mongo, **config).stream({} if resume is None else {1: resume}, {}, self.encoders)
        assert isinstance(stream, IncrementalStream)
        self.stream = stream
        self._opened = stream._open
        stream._open = self._looked  # type: ignore[method-assign]
        self._idle = 0
        self.mark: ThreadMark
        self.poll()

    def _looked(self, look: UpperBounds) -> None:
        self._opened(look)
        self._idle = 0 if self.stream._cursors.is_open else self._idle + 1

    def poll(self) -> list[SourceTransaction]:
        polled = self.stream.poll(frozenset())
        self.mark = polled.marks[1]
        self.stream.acknowledge({1: self.mark.resume})
        return polled.transactions

    def ids(self) -> list[Any]:
        """Of all documents until two looks have found nothing new."""
        found: list[SourceTransaction] = []
        self._idle = 0
        deadline = time.monotonic() + WAIT_SECONDS
        while self._idle < 2:
            assert time.monotonic() < deadline, "it never comes to its end"
            found += self.poll()
        return [(self.encoders.change(frame).after or {})["_id"] for t in found for frame in t.changes]


@contextmanager
def _syncs(mongo: MongoDatabase, primary: str = "n", resume: bytes | None = None, **settings: Any) -> Iterator[Syncs]:
    syncs = Syncs(mongo, primary, resume, **settings)
    try:
        yield syncs
    finally:
        syncs.stream.close()


def test_all_come_once_then_what_is_new_and_what_has_changed(mongo: MongoDatabase) -> None:
    mongo.db.t.insert_many([{"_id": n, "n": n // 3} for n in range(10)])
    with _syncs(mongo) as syncs:
        assert syncs.ids() == list(range(10))
        assert syncs.ids() == []
        mongo.db.t.insert_one({"_id": 10, "n": 3})
        mongo.db.t.update_one({"_id": 0}, {"$set": {"n": 4}})
        assert syncs.ids() == [10, 0]


def test_equal_values_at_the_bound_come_once_each(mongo: MongoDatabase) -> None:
    mongo.db.t.insert_many([{"_id": n, "n": 7} for n in range(5)])
    with _syncs(mongo) as syncs:
        assert syncs.ids() == [0, 1, 2, 3, 4]
        mongo.db.t.insert_many([{"_id": n, "n": 7} for n in (5, 6)])
        assert syncs.ids() == [5, 6]


def test_ids_of_several_types_are_told_apart_at_the_bound(mongo: MongoDatabase) -> None:
    mongo.db.t.insert_many([{"_id": id_, "n": 7} for id_ in (1, "a")])
    with _syncs(mongo, ids_as_json=[f"{mongo.name}.t"]) as syncs:
        assert syncs.ids() == ["1", '"a"']
        mongo.db.t.insert_one({"_id": True, "n": 7})
        assert syncs.ids() == ["true"]


def test_nulls_and_missing_ones_come_with_the_first_sync(mongo: MongoDatabase) -> None:
    mongo.db.t.insert_many([{"_id": 1}, {"_id": 2, "n": None}, {"_id": 3, "n": 1}])
    with _syncs(mongo) as syncs:
        assert sorted(syncs.ids()) == [1, 2, 3]
        mongo.db.t.insert_one({"_id": 4})
        assert syncs.ids() == []
        mongo.db.t.update_one({"_id": 4}, {"$set": {"n": 2}})
        assert syncs.ids() == [4]


def test_times_are_read_once_they_have_settled_and_never_before_they_are(mongo: MongoDatabase) -> None:
    now = dt.datetime.now(dt.UTC)
    times = {1: now - dt.timedelta(hours=1), 2: now - dt.timedelta(seconds=1), 3: now + dt.timedelta(hours=1)}
    mongo.db.t.insert_many([{"_id": n, "n": at} for n, at in times.items()])
    with _syncs(mongo, settle_seconds=60) as syncs:
        assert syncs.ids() == [1]
    with _syncs(mongo) as syncs:
        assert syncs.ids() == [1, 2]


@pytest.mark.parametrize("other", ["text", True, [1], {"a": 1}])
def test_a_cursor_of_several_types_is_refused(mongo: MongoDatabase, other: Any) -> None:
    mongo.db.t.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 2.5}, {"_id": 3, "n": other}])
    with _syncs(mongo) as syncs, pytest.raises(StartRefusedError, match="several types"):
        syncs.ids()


def test_stopped_in_a_sync_it_reads_up_to_the_same_bound(mongo: MongoDatabase) -> None:
    mongo.db.t.insert_many([{"_id": n, "n": n} for n in range(10)])
    with _syncs(mongo) as syncs:
        while not syncs.stream._cursors.is_open:
            syncs.poll()
        resume = syncs.mark.resume
        while syncs.mark.resume == resume:
            syncs.poll()
            resume = syncs.mark.resume if syncs.stream._cursors.is_open else resume
            break
    mongo.db.t.insert_one({"_id": 10, "n": 10})
    with _syncs(mongo, resume=resume) as again:
        assert again.ids() == list(range(11))
