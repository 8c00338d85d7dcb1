"""What a server lacks is said by name, with the words that mend it: by `check`, at the start, and on the way."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pymongo
import pytest
from tests.conformance.kit import SOURCE
from tests.integration.mongodb.reading import Read, reading, source_of
from tests.support.mongodb import MongoDatabase, NewMongo
from tests.support.versions import Versions

from lowwater.errors import LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.api import Check
from lowwater_extractor.sources import open_source


def _checks(database: MongoDatabase, **settings: Any) -> dict[str, Check]:
    return {check.name: check for check in source_of(database, **settings).check()}


def test_all_is_well(mongo: MongoDatabase) -> None:
    mongo.create("a")
    found = _checks(mongo)
    assert all(check.is_good for check in found.values()), found
    names = [
        "connection",
        "version",
        "replica set",
        "sharding",
        "identity",
        "oplog",
        "change stream",
        "tables",
        "images",
    ]
    assert list(found) == names


def test_images_that_are_off_are_named_with_the_statement_that_turns_them_on(mongo: MongoDatabase) -> None:
    mongo.create("good")
    mongo.db.create_collection("bare")
    check = _checks(mongo)["images"]
    assert not check.is_good
    assert f"{mongo.name}.bare" in check.what
    assert 'collMod: "bare", changeStreamPreAndPostImages: {enabled: true}' in check.fix
    with pytest.raises(StartRefusedError, match="bare") as refused:
        Read(mongo)
    assert "collMod" in (refused.value.hint or "")
    with reading(mongo, manage_images=True) as read:
        mongo.db.bare.insert_one({"_id": 1})
        mongo.db.bare.update_one({"_id": 1}, {"$set": {"x": 1}})
        assert len(read.new()) == 2
    assert _checks(mongo)["images"].is_good


def test_an_update_without_an_image_stops_the_source_without_showing_the_document(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        mongo.db.create_collection("later")
        mongo.db.later.insert_one({"_id": "secret"})
        mongo.db.later.update_one({"_id": "secret"}, {"$set": {"x": 1}})
        with pytest.raises(StartRefusedError, match=r"changeStreamPreAndPostImages is off: .*later") as refused:
            read.new()
    assert "secret" not in str(refused.value)
    assert "collMod" in (refused.value.hint or "")


def test_views_are_refused(mongo: MongoDatabase) -> None:
    mongo.create("a")
    mongo.db.create_collection("v", viewOn="a", pipeline=[])
    assert not _checks(mongo, tables=[f"{mongo.name}.v"])["tables"].is_good
    with pytest.raises(StartRefusedError, match="not a collection"):
        Read(mongo, tables=[f"{mongo.name}.v"])
    assert _checks(mongo)["tables"].is_good, "a pattern stands for collections"


def test_a_token_that_has_left_the_oplog_says_how_to_refresh(new_mongo: NewMongo) -> None:
    # what lies behind the last checkpoint is kept: so there is one every second
    server = new_mongo(oplog_mb=1, options=["--syncdelay", "1"])
    server.start()
    database = MongoDatabase(server)
    database.create("a")
    with reading(database) as read:
        resume = read.mark.resume
    _turn_oplog_over(database)
    with pytest.raises(LogGapError) as refused, reading(database, resume=resume) as again:
        again.new()
    assert "reset" in (refused.value.hint or "")
    assert "oplog" in (refused.value.hint or "")
    database.client.close()


def _turn_oplog_over(database: MongoDatabase) -> None:
    """As years would: what is at its beginning is taken away."""
    oplog = database.client.local["oplog.rs"]
    first = oplog.find_one(sort=[("$natural", 1)])
    text = "x" * 1_000_000
    deadline = time.monotonic() + 60
    number = 0
    while (oplog.find_one(sort=[("$natural", 1)]) or first)["ts"] == first["ts"]:
        assert time.monotonic() < deadline, "the oplog keeps everything"
        number += 1
        database.db.a.replace_one({"_id": number % 50}, {"t": text}, upsert=True)


def test_a_user_who_may_not_is_told_what_to_grant(new_mongo: NewMongo, monkeypatch: pytest.MonkeyPatch) -> None:
    server = new_mongo(key="lowwaterlowwater")
    server.start()
    # the first user is made from this machine, without a password
    local: pymongo.MongoClient[Any] = pymongo.MongoClient(server.hosts[0], directConnection=True)
    with local:
        roles = [{"role": "root", "db": "admin"}]
        local.admin.command({"createUser": "root", "pwd": "root", "roles": roles})
    monkeypatch.setenv("MONGO_PASSWORD", "reader")
    settings = {
        "hosts": server.hosts, "replica_set": server.name, "tables": ["bank.*"], "user": "reader",
        "password": "${env:MONGO_PASSWORD}",
    }  # fmt: skip
    with server.client(username="root", password="root") as root:
        root.bank.create_collection("a", changeStreamPreAndPostImages={"enabled": True})
        with pytest.raises(SourceError, match="Authentication failed") as refused:
            open_source(SOURCE, "mongodb", settings).stream({}, {}, Versions())
        assert "auth_source" in (refused.value.hint or "")
        root.admin.command({"createUser": "reader", "pwd": "reader", "roles": []})
        bad = {c.name: c for c in open_source(SOURCE, "mongodb", settings).check()}
        assert not bad["identity"].is_good
        assert not bad["change stream"].is_good
        for name in ("identity", "change stream"):
            root.admin.command(_granted(bad[name].fix))
        good = {c.name: c for c in open_source(SOURCE, "mongodb", settings).check()}
        assert all(check.is_good for check in good.values()), good


def _granted(fix: str) -> dict[str, Any]:
    """The statement that a check advises, as the command that it is."""
    role, database = fix.split('role: "')[1].split('"')[0], fix.split('db: "')[1].split('"')[0]
    return {"grantRolesToUser": "reader", "roles": [{"role": role, "db": database}]}


def test_a_server_that_is_not_there_is_tried_again(tmp_path: Path) -> None:
    settings = {
        "hosts": ["127.0.0.1:1"], "replica_set": "r", "tables": ["a.*"], "options": {"serverSelectionTimeoutMS": 200},
    }  # fmt: skip
    source = open_source(SOURCE, "mongodb", settings)
    with pytest.raises(SourceLostError):
        source.incarnation()
    (check,) = source.check()
    assert (check.name, check.is_good) == ("connection", False)


def test_a_position_of_the_other_mode_is_refused(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        resume = read.mark.resume
    name = f"{mongo.name}.a"
    incremental: dict[str, Any] = {"tables": [name], "mode": "incremental", "cursors": {name: {"primary": "at"}}}
    with pytest.raises(StartRefusedError, match="mode"):
        Read(mongo, resume=resume, **incremental)
