"""Checks of the prerequisites of a replica set for capture, each with its fix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowwater.errors import LowwaterError, StartRefusedError
from lowwater_extractor.api import Check
from lowwater_extractor.sources.mongodb.catalogue import (
    CollectionInfo,
    list_collections,
    oplog_range,
    refuse_shard,
    replica_set_id,
)
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import Client, ask, connect, named_errors
from lowwater_extractor.sources.mongodb.cursor.query import order
from lowwater_extractor.sources.mongodb.wire.change_cursor import ChangeCursor

#: stored post-images exist since 6.0
VERSION_MIN = (6, 0)
VERSION_MAX = 8
#: with a shorter oplog, an outage of a night or a weekend requires a reset
OPLOG_HOURS_WANTED = 24


def check_source(config: MongoConfig, source: str) -> list[Check]:
    """Run all checks; a failed check does not hide the next ones."""
    try:
        client = connect(config, source)
    except LowwaterError as error:
        return [Check("connection", False, error.what, error.hint or "")]
    try:
        return list(_checks(config, source, client))
    finally:
        client.close()


def _checks(config: MongoConfig, source: str, client: Client) -> Iterator[Check]:
    try:
        hello = ask(client, source, "admin", {"hello": 1})
        version = ask(client, source, "admin", {"buildInfo": 1})["versionArray"]
    except LowwaterError as error:
        yield Check("connection", False, error.what, error.hint or "")
        return
    yield Check("connection", True, f"{', '.join(config.hosts)} as {config.user or 'anonymous'}")
    is_known = tuple(version[:2]) >= VERSION_MIN and version[0] <= VERSION_MAX
    yield Check("version", is_known, ".".join(map(str, version[:3])), f"supported: MongoDB 6.0 to {VERSION_MAX}.0")
    is_set = "setName" in hello
    yield Check(
        "replica set", is_set, str(hello.get("setName", "none")),
        "start mongod with --replSet and call rs.initiate(); a sharded cluster cannot be captured",
    )  # fmt: skip
    if config.mode == "incremental":
        yield from _incremental(config, source, client)
        return
    if not config.has_log:
        yield from _collections(config, source, client)
        return
    yield _asked("sharding", lambda: refuse_shard(client, source), _grant(config, "clusterMonitor", "admin"))
    yield _asked("identity", lambda: replica_set_id(client, source), _grant(config, "clusterMonitor", "admin"))
    yield _oplog(config, source, client)
    yield _asked("change stream", lambda: _opens(config, source, client), _read_grant(config))
    yield from _collections(config, source, client)


def _asked(name: str, what: Any, fix: str) -> Check:
    try:
        return Check(name, True, str(what()))
    except LowwaterError as error:
        return Check(name, False, error.what, (error.hint or fix) if isinstance(error, StartRefusedError) else fix)


def _grant(config: MongoConfig, role: str, database: str) -> str:
    who = config.user or "lowwater"
    return f'db.getSiblingDB("admin").grantRolesToUser("{who}", [{{role: "{role}", db: "{database}"}}])'


def _read_grant(config: MongoConfig) -> str:
    if config.databases is None or len(config.databases) > 1:
        return _grant(config, "readAnyDatabase", "admin")
    return _grant(config, "read", config.databases[0])


def _opens(config: MongoConfig, source: str, client: Client) -> str:
    ChangeCursor(client, source, config, None).close()
    return "can be opened"


def _oplog(config: MongoConfig, source: str, client: Client) -> Check:
    """The length is advice only: a new server has a short oplog."""
    try:
        first, last = oplog_range(client, source)
        # it is searched for writes that the stream does not contain
        with named_errors(source, "oplog"):
            client["local"]["oplog.rs"].find_one({}, {"ts": 1})
    except LowwaterError as error:
        return Check("oplog", False, error.what, _grant(config, "clusterMonitor", "admin"))
    hours = ((last >> 32) - (first >> 32)) / 3600
    advice = "" if hours >= OPLOG_HOURS_WANTED else (
        f"; advised: {OPLOG_HOURS_WANTED} hours at least, db.adminCommand({{replSetResizeOplog: 1, "
        f"minRetentionHours: {OPLOG_HOURS_WANTED}}})"
    )  # fmt: skip
    return Check("oplog", True, f"goes back {hours:.1f} hours{advice}")


def _collections(config: MongoConfig, source: str, client: Client) -> Iterator[Check]:
    try:
        found = list_collections(client, config, source)
    except LowwaterError as error:
        yield Check("tables", False, error.what, _read_grant(config))
        return
    yield _tables(config, found)
    if not config.has_log:
        return
    bare = [info for info in found if info.type == "collection" and not info.has_images]
    fix = "; ".join(info.mend for info in bare[:20])
    if bare and config.manage_images:
        yield Check("images", True, f"turned on at the start: {', '.join(info.name for info in bare[:20])}")
        return
    what = f"off: {', '.join(info.name for info in bare[:20])}" if bare else "on for all"
    yield Check("images", not bare, what, f"{fix}; or set manage_images: true" if bare else "")


def _tables(config: MongoConfig, found: list[CollectionInfo]) -> Check:
    if wrong := [info for info in found if info.type != "collection"]:
        what = ", ".join(f"{info.name} is a {info.type}" for info in wrong)
        return Check("tables", False, what, "these have no changes of their own: remove them from `tables`")
    there = {info.name for info in found}
    missing = [name for name in config.tables if not name.endswith(".*") and name not in there]
    what = f"{len(found)} collections{f'; not there yet: {chr(44).join(missing)}' if missing else ''}"
    return Check("tables", True, what)


def _incremental(config: MongoConfig, source: str, client: Client) -> Iterator[Check]:
    try:
        there = {info.name: info for info in list_collections(client, config, source)}
    except LowwaterError as error:
        yield Check("tables", False, error.what, _read_grant(config))
        return
    missing = [name for name in config.cursors if name not in there]
    fix = f"missing: {', '.join(missing)}; correct `tables`"
    yield Check("tables", not missing, f"{len(there)} collections and views", fix if missing else "")
    bare = []
    for name, cursor in config.cursors.items():
        database, _, collection = name.partition(".")
        if name not in there or there[name].type != "collection":
            continue
        with named_errors(source, f"indexes of {name}"):
            keys = [index["key"] for index in client[database][collection].index_information().values()]
        if not any(key[0][0] == cursor.primary for key in keys):
            bare.append(f'db.getSiblingDB("{database}").{collection}.createIndex({order(cursor, 1)})')
    what = f"advised, each poll reads the whole collection: {'; '.join(bare)}" if bare else "present"
    yield Check("index", True, what)
