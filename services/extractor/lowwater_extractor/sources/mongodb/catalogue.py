"""Queries of the server outside the stream: its identity, its oplog, its collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from lowwater.errors import SourceError, StartRefusedError
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import Client, ask, named_errors, told
from lowwater_extractor.sources.mongodb.position import ClusterTime, LogEntry, cluster_time

_IMAGES = "changeStreamPreAndPostImages"
#: databases of the server itself
_OWN = {"admin", "config", "local"}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    name: str
    #: different after the collection was dropped and created again
    uuid: str
    has_images: bool
    #: `collection`, `view` or `timeseries`
    type: str = "collection"

    @property
    def mend(self) -> str:
        """The command that turns the collection's images on."""
        database, _, collection = self.name.partition(".")
        return f'db.getSiblingDB("{database}").runCommand({{collMod: "{collection}", {_IMAGES}: {{enabled: true}}}})'


def replica_set_id(client: Client, source: str) -> str:
    """Return the set's identity, which is assigned when it is initiated, and is the same on every primary."""
    config = ask(client, source, "admin", {"replSetGetConfig": 1})
    found = told(config, source, "replSetGetConfig", lambda a: a["config"].get("settings", {}).get("replicaSetId"))
    if found is None:
        raise SourceError("the replica set has no replicaSetId", source=source, hint="is it older than MongoDB 3.2?")
    return str(found)


def set_name(client: Client, source: str) -> str:
    return str(told(ask(client, source, "admin", {"hello": 1}), source, "hello", lambda answer: answer["setName"]))


def refuse_shard(client: Client, source: str) -> str:
    """Raise StartRefusedError if the set is a shard: documents move between shards without change events."""
    hello = ask(client, source, "admin", {"hello": 1})
    state = ask(client, source, "admin", {"shardingState": 1})
    if not state.get("enabled") and not hello.get("configsvr") and hello.get("msg") != "isdbgrid":
        return "not a member of a sharded cluster"
    raise StartRefusedError(
        f"this is shard {state.get('shardName', '')!r} of a sharded cluster: documents move between shards without "
        "events in a shard's change stream",
        source=source,
        hint="capture a replica set that is not a shard; sharded clusters are not supported, see docs/mongodb.md",
    )


def log_end(client: Client, source: str) -> LogEntry:
    """Return the last majority-committed entry of the oplog."""
    found = ask(client, source, "admin", {"hello": 1})
    return told(found, source, "hello", lambda a: _entry(a["lastWrite"]["majorityOpTime"]))


def _entry(optime: dict[str, Any]) -> LogEntry:
    return LogEntry(cluster_time(optime["ts"]), int(optime["t"]))


def oplog_range(client: Client, source: str) -> tuple[ClusterTime, ClusterTime]:
    """Return the times of the first and the last entry of the oplog."""
    answer = ask(client, source, "admin", {"serverStatus": 1, **_ONLY_OPLOG})
    return told(answer, source, "serverStatus", lambda a: (_optime(a, "earliestOptime"), _optime(a, "latestOptime")))


def _optime(status: dict[str, Any], name: str) -> ClusterTime:
    found = status["oplog"][name]
    return cluster_time(found["ts"] if isinstance(found, dict) else found)


#: without the other sections of serverStatus, which are more expensive
_ONLY_OPLOG = {"none": 1, "oplog": 1}


def list_collections(client: Client, config: MongoConfig, source: str) -> list[CollectionInfo]:
    """Return the existing collections that the config names or that match its patterns."""
    databases = config.databases
    if databases is None:
        answer = ask(client, source, "admin", {"listDatabases": 1, "nameOnly": True})
        names = told(answer, source, "listDatabases", lambda a: [one["name"] for one in a["databases"]])
        databases = [name for name in names if name not in _OWN]
    return [info for database in databases for info in _collections(client, source, database, config)]


def _collections(client: Client, source: str, database: str, config: MongoConfig) -> list[CollectionInfo]:
    found = []
    with named_errors(source, f"list the collections of {database}"):
        for one in client[database].list_collections():
            info = told(dict(one), source, "listCollections", lambda answer: _info(database, answer))
            if config.is_wanted(info.name) and (info.type == "collection" or info.name in config.tables):
                found.append(info)
    return sorted(found, key=lambda info: info.name)


def _info(database: str, answer: dict[str, Any]) -> CollectionInfo:
    images = answer.get("options", {}).get(_IMAGES, {}).get("enabled", False)
    uuid = answer.get("info", {}).get("uuid", b"")
    return CollectionInfo(f"{database}.{answer['name']}", bytes(uuid).hex(), bool(images), answer["type"])


def enable_images(client: Client, config: MongoConfig, source: str) -> None:
    for info in list_collections(client, config, source):
        if info.type == "collection" and not info.has_images:
            database, _, collection = info.name.partition(".")
            command: dict[str, Any] = {"collMod": collection, _IMAGES: {"enabled": True}}
            ask(client, source, database, command)
            _log.info("images turned on", source=source, table=info.name)


def refuse_without_images(client: Client, config: MongoConfig, source: str) -> None:
    """Raise StartRefusedError if images are off for a captured collection."""
    if bare := [info for info in list_collections(client, config, source) if not info.has_images]:
        raise StartRefusedError(
            f"changeStreamPreAndPostImages is off: {', '.join(info.name for info in bare[:10])}", source=source,
            hint=f"{bare[0].mend}; `lowwater source check` lists all; or set manage_images: true",
        )  # fmt: skip
