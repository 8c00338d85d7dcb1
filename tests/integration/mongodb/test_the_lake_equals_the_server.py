"""What applications and administrators do to collections, and whether the lake still has what the server has."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from tests.integration.mongodb.lake import Lake
from tests.integration.mongodb.reading import Read, copied, reading, source_of
from tests.support.mongodb import IMAGES, MongoDatabase, NewMongo
from tests.unit.mongodb.documents import VALUES

from lowwater.codec.table import INT64
from lowwater.errors import IncarnationError, LogGapError, LogUnknownError, SourceError, StartRefusedError
from lowwater_extractor.sources.mongodb.catalogue import log_end
from lowwater_extractor.sources.mongodb.position import ClusterTime
from lowwater_extractor.sources.mongodb.wire.oplog import writes_without_event

ODD: list[dict[str, Any]] = [
    {"": 1, "a.b": 2, "$c": 3, "_gsn": 4, "_rest": 5, "_op": "x", "é": 6, "A": 1, "a": 2},
    {"v": [1, "x", None, {"y": []}]}, {"v": "text"}, {"v": 1}, {"v": 2.5}, {"v": Int64(1 << 60)}, {"v": None},
    {"n": Decimal128("9E+6144")}, {"n": Decimal128("-0")}, {"n": Decimal128("NaN")}, {"n": Decimal128("1E-6176")},
    {"n": 1}, {"n": Decimal128("1234567890123456.789012345678901234")}, {"n": 1.5},
    {"r": {"$ref": "c", "$id": ObjectId(), "$db": "d"}},
]  # fmt: skip


def test_documents_of_every_kind_are_the_same_by_stream_and_by_copy(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        lake = Lake(read)
        for number, odd in enumerate([*ODD, *({name: value} for name, value, _ in VALUES)]):
            mongo.db.a.insert_one({"_id": number, **odd})
        lake.check()
        mongo.db.a.update_many({}, {"$set": {"n": "now a text"}})
        lake.check()


def test_long_then_double_loses_no_digit(mongo: MongoDatabase) -> None:
    """A column of long whole numbers does not become one of doubles, which would round those that are there."""
    mongo.create("a")
    with reading(mongo) as read:
        lake = Lake(read)
        mongo.db.a.insert_one({"_id": 1, "v": Int64((1 << 60) + 1)})
        lake.follow()
        mongo.db.a.insert_one({"_id": 2, "v": 0.5})
        lake.check()
        assert lake.rows["a"][1]["v"] == (1 << 60) + 1
        assert read.stream.seen[f"{mongo.name}.a"].columns[1].type == INT64


@pytest.mark.parametrize("before", ["row", "key"])
def test_an_id_that_becomes_another_type_of_the_same_number_is_one_document(mongo: MongoDatabase, before: str) -> None:
    mongo.create("a")
    with reading(mongo, ids_as_json=[f"{mongo.name}.a"], before=before) as read:
        lake = Lake(read)
        mongo.db.a.insert_many([{"_id": 1}, {"_id": {"k": 1}}, {"_id": Decimal128("2")}])
        lake.check()
        mongo.db.a.replace_one({"_id": 1}, {"_id": 1.0, "x": 1})
        mongo.db.a.replace_one({"_id": {"k": 1}}, {"_id": {"k": 1.0}})
        mongo.db.a.replace_one({"_id": 2}, {"_id": Decimal128("2.00")})
        lake.check()
        assert len(lake.rows["a"]) == 3
        mongo.db.a.delete_many({})
        lake.check()


def test_out_onto_a_captured_collection_is_copied_again_and_its_temporary_one_is_no_table(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    mongo.db.a.insert_many([{"_id": n, "v": n} for n in range(5)])
    mongo.db.b.insert_one({"_id": "old"})
    with reading(mongo, ids_as_json=[f"{mongo.name}.b"]) as read:
        lake = Lake(read)
        lake.copy("a")
        lake.copy("b")
        list(mongo.db.a.aggregate([{"$set": {"w": 1}}, {"$out": "b"}]))
        list(mongo.db.a.aggregate([{"$set": {"w": 2}}, {"$merge": "a"}]))
        list(mongo.db.a.aggregate([{"$out": "new"}]))
        lake.check()
        assert set(lake.rows) == {"a", "b", "new"}


def test_a_collection_made_capped_and_its_documents_that_are_pushed_out(mongo: MongoDatabase) -> None:
    mongo.create("a")
    mongo.create("cap", capped=True, size=4096, max=3)
    with reading(mongo) as read:
        lake = Lake(read)
        mongo.db.a.insert_many([{"_id": n, "v": "x" * 500} for n in range(20)])
        mongo.db.cap.insert_many([{"_id": n} for n in range(8)])
        lake.check()
        mongo.db.command({"convertToCapped": "a", "size": 4096})
        mongo.db.a.insert_many([{"_id": 100 + n, "v": "x" * 500} for n in range(5)])
        lake.check()
        assert set(lake.rows) == {"a", "cap"}


def test_names_that_are_swapped(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    with reading(mongo, tables=[f"{mongo.name}.a", f"{mongo.name}.b"]) as read:
        lake = Lake(read)
        mongo.db.a.insert_many([{"_id": n, "v": "a"} for n in range(3)])
        mongo.db.b.insert_many([{"_id": n, "v": "b"} for n in range(2, 6)])
        lake.check()
        mongo.db.a.rename("other")
        mongo.db.b.rename("a")
        mongo.db.other.rename("b")
        mongo.db.a.insert_one({"_id": 77})
        lake.check()


def test_a_collection_that_comes_from_another_database(mongo: MongoDatabase) -> None:
    other = MongoDatabase(mongo.server)
    try:
        other.create("src")
        other.db.src.insert_many([{"_id": n} for n in range(3)])
        with reading(mongo) as read:
            lake = Lake(read)
            mongo.client.admin.command({"renameCollection": f"{other.name}.src", "to": f"{mongo.name}.dst"})
            mongo.db.dst.insert_one({"_id": 9})
            lake.check()
            assert set(lake.rows) == {"dst"}
    finally:
        other.drop()


def test_everything_dropped_and_made_again(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    with reading(mongo) as read:
        lake = Lake(read)
        mongo.db.a.insert_one({"_id": 1, "v": 1})
        lake.check()
        mongo.db.a.drop()
        mongo.create("a")
        mongo.db.a.insert_one({"_id": "one", "v": "x"})
        lake.check()
        mongo.client.drop_database(mongo.name)
        lake.check()
        mongo.create("a")
        mongo.db.a.insert_one({"_id": ObjectId(), "v": 1.5})
        lake.check()
        assert list(lake.rows) == ["a"]


@pytest.mark.parametrize(
    "options",
    [{"clusteredIndex": {"key": {"_id": 1}, "unique": True}}, {"collation": {"locale": "de", "strength": 1}}],
    ids=["clustered", "collation"],
)
def test_a_copy_in_many_chunks_has_each_document_once(mongo: MongoDatabase, options: dict[str, Any]) -> None:
    mongo.create("a", **options)
    ids = [f"{'aAäÄbBß'[n % 7]}{n // 7:03}" for n in range(280)]
    for id_ in ids:
        mongo.db.a.update_one({"_id": id_}, {"$set": {"v": id_}}, upsert=True)
    with reading(mongo, chunk_rows=20) as read:
        lake = Lake(read)
        lake.copy("a")
        assert len(lake.rows["a"]) == mongo.db.a.count_documents({})
        mongo.db.a.delete_many({"_id": {"$gt": "b"}})
        lake.check()


# -- what the stream does not tell ---------------------------------------------------------------------------


def _apply(mongo: MongoDatabase, *operations: dict[str, Any]) -> None:
    mongo.client.admin.command({"applyOps": [{"ns": f"{mongo.name}.a", **one} for one in operations]})


def test_what_apply_ops_writes_is_found_in_the_oplog_and_copied_again(mongo: MongoDatabase) -> None:
    """As `mongorestore --oplogReplay` writes; a change stream shows nothing of it."""
    mongo.create("a", "b")
    mongo.db.a.insert_one({"_id": 1})
    with reading(mongo) as read:
        lake = Lake(read)
        lake.copy("a")
        lake.copy("b")
        _apply(mongo, {"op": "i", "o": {"_id": 2}}, {"op": "d", "o": {"_id": 1}})
        lake.check()
        assert list(read.stale) == [f"{mongo.name}.a"]
        assert lake.copies == 3
        resume, encoders = read.mark.resume, read.encoders
    _apply(mongo, {"op": "i", "o": {"_id": 3}})
    with reading(mongo, resume=resume, encoders=encoders) as again:
        again.stream._figures_at = 0.0
        again.new()
        last = again.stale[f"{mongo.name}.a"].order
        assert last > read.stale[f"{mongo.name}.a"].order, "also what was written while nobody read"


def test_what_apply_ops_writes_stops_a_source_that_does_not_copy(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo, copy_tables=False) as read:
        _apply(mongo, {"op": "i", "o": {"_id": 2}})
        read.stream._figures_at = 0.0
        with pytest.raises(LogGapError, match="applyOps") as refused:
            read.new()
        assert (refused.value.source, refused.value.thread) == ("conformance", 1)
        assert refused.value.position


def test_what_a_balancer_has_moved_stops_the_source_by_name(mongo: MongoDatabase) -> None:
    mongo.create("a")
    source = source_of(mongo)
    _apply(mongo, {"op": "i", "o": {"_id": 2}, "fromMigrate": True})
    end = log_end(mongo.client, "s").time
    with pytest.raises(LogUnknownError, match="fromMigrate"):
        writes_without_event(mongo.client, "s", source.config, ClusterTime(end - (10 << 32)), end)


def test_a_shard_is_refused_at_the_start_and_while_it_is_read(new_mongo: NewMongo) -> None:
    server = new_mongo(options=["--shardsvr"])
    server.start()
    database = MongoDatabase(server)
    database.client.admin.command({"setFeatureCompatibilityVersion": "6.0"})
    database.create("a")
    identity = {"_id": "shardIdentity", "shardName": "north", "clusterId": ObjectId()}
    with reading(database) as read:
        database.client.admin["system.version"].insert_one({**identity, "configsvrConnectionString": "cfg/127.0.0.1:1"})
        read.stream._figures_at = 0.0
        with pytest.raises(StartRefusedError, match="shard 'north'"):
            read.poll()
    with pytest.raises(StartRefusedError, match="shard 'north'") as refused:
        Read(database)
    assert refused.value.source == "conformance"
    assert "docs/mongodb.md" in (refused.value.hint or "")
    (check,) = [check for check in source_of(database).check() if check.name == "sharding"]
    assert not check.is_good
    assert "sharded cluster" in check.fix
    database.client.close()


# -- another history -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_seconds", [0.0, 3.0], ids=["after an event", "after a token of an idle server"])
def test_a_set_that_is_restored_from_files_is_not_read_on(
    new_mongo: NewMongo, tmp_path: Path, idle_seconds: float
) -> None:
    """It has the same identity, and its change stream goes on without an error."""
    server = new_mongo()
    server.start()
    database = MongoDatabase(server, "shop")
    database.create("a")
    database.db.a.insert_one({"_id": 1})
    database.client.close()
    server.stop()
    shutil.copytree(server.directory, tmp_path / "backup")
    server.start()
    database = MongoDatabase(server, "shop")
    with reading(database) as read:
        database.db.a.insert_one({"_id": 2})
        read.new()
        until = time.monotonic() + idle_seconds
        while time.monotonic() < until:
            read.poll()
        resume, incarnation = read.mark.resume, read.source.incarnation()
    database.client.close()
    server.stop()
    shutil.rmtree(server.directory)
    shutil.copytree(tmp_path / "backup", server.directory)
    server.start()
    database = MongoDatabase(server, "shop")
    database.db.a.insert_one({"_id": 3})
    assert source_of(database).incarnation() == incarnation
    with pytest.raises(IncarnationError, match="restored from an earlier state") as refused:
        Read(database, resume=resume)
    assert "source reset" in (refused.value.hint or "")
    assert refused.value.position
    with reading(database) as again:
        database.db.a.insert_one({"_id": 4})
        assert len(again.new()) == 1, "from scratch it is captured"
    database.client.close()


def test_a_copy_of_what_a_restore_undoes_is_found_out_without_any_event(new_mongo: NewMongo, tmp_path: Path) -> None:
    server = new_mongo()
    server.start()
    database = MongoDatabase(server, "shop")
    database.create("a")
    database.client.close()
    server.stop()
    shutil.copytree(server.directory, tmp_path / "backup")
    server.start()
    database = MongoDatabase(server, "shop")
    database.db.a.insert_one({"_id": 1})
    with reading(database) as read:
        read.stream.end_of_log()
        read.poll()
        resume = read.mark.resume
    database.client.close()
    server.stop()
    shutil.rmtree(server.directory)
    shutil.copytree(tmp_path / "backup", server.directory)
    server.start()
    database = MongoDatabase(server, "shop")
    with pytest.raises(IncarnationError):
        Read(database, resume=resume)
    database.client.close()


def test_another_set_of_the_same_name_is_another_incarnation(new_mongo: NewMongo) -> None:
    found = set()
    for number in range(2):
        server = new_mongo(f"set{number}")
        server.start()
        database = MongoDatabase(server, "shop")
        found.add(source_of(database).incarnation())
        database.client.close()
    assert len(found) == 2


# -- images and sizes ----------------------------------------------------------------------------------------


OFF = {"changeStreamPreAndPostImages": {"enabled": False}}


def test_images_that_were_off_for_a_moment_make_their_collection_stale(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    mongo.db.a.insert_one({"_id": 1})
    mongo.db.b.insert_one({"_id": 1})
    with reading(mongo) as read:
        mongo.db.command({"collMod": "a", **OFF})
        mongo.db.a.update_one({"_id": 1}, {"$set": {"x": 1}})
        mongo.db.command({"collMod": "a", **IMAGES})
        mongo.db.b.update_one({"_id": 1}, {"$set": {"x": 1}})
        mongo.db.a.update_one({"_id": 1}, {"$set": {"x": 2}})
        found = read.new()
        assert [change.after["x"] for (change,) in found if change.after] == [1, 2]
        assert set(read.stale) == {f"{mongo.name}.a"}
        assert "image" in read.stale[f"{mongo.name}.a"].reason
        assert copied(read, f"{mongo.name}.a")["x"].to_pylist() == [2]


def test_images_that_were_turned_off_are_turned_on_again_where_they_are_ours_to_manage(mongo: MongoDatabase) -> None:
    mongo.create("a")
    mongo.db.a.insert_one({"_id": 1})
    with reading(mongo, manage_images=True) as read:
        mongo.db.command({"collMod": "a", **OFF})
        mongo.db.a.update_one({"_id": 1}, {"$set": {"x": 1}})
        assert read.new() == []
        assert set(read.stale) == {f"{mongo.name}.a"}
        mongo.db.a.update_one({"_id": 1}, {"$set": {"x": 2}})
        assert [change.after["x"] for change in read.one() if change.after] == [2]


def test_images_that_are_off_stop_the_source_until_they_are_on_and_it_goes_on_from_there(mongo: MongoDatabase) -> None:
    mongo.create("a")
    mongo.db.a.insert_one({"_id": 1})
    with reading(mongo) as read:
        resume = read.mark.resume
        mongo.db.command({"collMod": "a", **OFF})
        mongo.db.a.update_one({"_id": 1}, {"$set": {"x": 1}})
        with pytest.raises(StartRefusedError, match="changeStreamPreAndPostImages") as refused:
            read.new()
        assert (refused.value.source, refused.value.thread) == ("conformance", 1)
        assert refused.value.position
    mongo.db.command({"collMod": "a", **IMAGES})
    with reading(mongo, resume=resume) as read:
        assert read.new() == []
        assert set(read.stale) == {f"{mongo.name}.a"}


def test_a_document_near_the_limit_comes_through_or_stops_the_source_by_name(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo, before="key") as read:
        mongo.db.a.insert_one({"_id": 1, "v": "x" * (12 << 20)})
        mongo.db.a.update_one({"_id": 1}, {"$set": {"w": 1}})
        (one,), (two,) = read.new()
        assert one.after is not None
        assert two.after is not None
        assert len(one.after["v"]) == len(two.after["v"]) == 12 << 20
    with reading(mongo) as read:
        mongo.db.a.update_one({"_id": 1}, {"$set": {"w": 2}})
        with pytest.raises(SourceError, match=r"10334|BSONObj") as refused:
            read.new()
        assert "before: key" in (refused.value.hint or "")
