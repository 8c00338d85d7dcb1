"""What is asked of the server beside the stream: its identity, its log, its collections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import structlog

from lowwater.errors import SourceError
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import Client, ask, named_errors
from lowwater_extractor.sources.mongodb.tokens import ClusterTime, cluster_time

_IMAGES = "changeStreamPreAndPostImages"
#: databases of the server's own
_OWN = {"admin", "config", "local"}

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    name: str
    #: another one after it was dropped and made again
    uuid: str
    has_images: bool
    #: `collection`, `view` or `timeseries`
    type: str = "collection"

    @property
    def mend(self) -> str:
        """Turns its images on."""
        database, _, collection = self.name.partition(".")
        return f'db.getSiblingDB("{database}").runCommand({{collMod: "{collection}", {_IMAGES}: {{enabled: true}}}})'


def replica_set_id(client: Client, source: str) -> str:
    """The set's identity: given when it was initiated, and the same whoever is its primary."""
    config = ask(client, source, "admin", {"replSetGetConfig": 1})["config"]
    found = config.get("settings", {}).get("replicaSetId")
    if found is None:
        raise SourceError("the replica set has no replicaSetId", source=source, hint="is it older than MongoDB 3.2?")
    return str(found)


def set_name(client: Client, source: str) -> str:
    return str(ask(client, source, "admin", {"hello": 1})["setName"])


def log_end(client: Client, source: str) -> ClusterTime:
    """Of the last write that a majority has."""
    found = ask(client, source, "admin", {"hello": 1})
    return cluster_time(found["lastWrite"]["majorityOpTime"]["ts"])


def oplog_range(client: Client, source: str) -> tuple[ClusterTime, ClusterTime]:
    """The first and the last entry of the oplog."""
    found = ask(client, source, "admin", {"serverStatus": 1, **_ONLY_OPLOG})["oplog"]
    first, last = (at["ts"] if isinstance(at, dict) else at for at in (found["earliestOptime"], found["latestOptime"]))
    return cluster_time(first), cluster_time(last)


#: the other parts of a server's status cost it more than this one
_ONLY_OPLOG = {"none": 1, "oplog": 1}


def list_collections(client: Client, config: MongoConfig, source: str) -> list[CollectionInfo]:
    """Those that the config names or its patterns stand for, as far as they are there."""
    databases = config.databases
    if databases is None:
        found = ask(client, source, "admin", {"listDatabases": 1, "nameOnly": True})["databases"]
        databases = [one["name"] for one in found if one["name"] not in _OWN]
    return [info for database in databases for info in _collections(client, source, database, config)]


def _collections(client: Client, source: str, database: str, config: MongoConfig) -> list[CollectionInfo]:
    found = []
    with named_errors(source, f"list the collections of {database}"):
        for one in client[database].list_collections():
            name = f"{database}.{one['name']}"
            if config.is_wanted(name) and (one["type"] == "collection" or name in config.tables):
                images = one.get("options", {}).get(_IMAGES, {}).get("enabled", False)
                uuid = one.get("info", {}).get("uuid", b"")
                found.append(CollectionInfo(name, bytes(uuid).hex(), bool(images), one["type"]))
    return sorted(found, key=lambda info: info.name)


def enable_images(client: Client, config: MongoConfig, source: str) -> None:
    for info in list_collections(client, config, source):
        if info.type == "collection" and not info.has_images:
            database, _, collection = info.name.partition(".")
            command: dict[str, Any] = {"collMod": collection, _IMAGES: {"enabled": True}}
            ask(client, source, database, command)
            _log.info("images turned on", source=source, table=info.name)
