"""Queries of the oplog for information that a change stream does not contain.

- **Whether it is still the same log.** A replica set that was restored from an earlier backup has the same identity,
  and a change stream that starts at a time continues there without an error, although changes that were read before are
  undone. So each start checks that earlier majority-committed entries are still in the oplog.
- **Writes without an event.** `applyOps` (used by `mongorestore --oplogReplay`) is one entry of the oplog, for which a
  change stream of MongoDB 6 has no event. Nor has it events for documents that the balancer moves between shards.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lowwater.errors import IncarnationError, LogUnknownError
from lowwater_extractor.sources.mongodb.catalogue import oplog_range
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import Client, named_errors, told
from lowwater_extractor.sources.mongodb.position import ClusterTime, Resume, cluster_time, timestamp

_EXISTS = {"$exists": True}
#: fields of an applyOps command of a user; the server's own batches, which have events, lack them
_BY_COMMAND = [{"o.lsid": _EXISTS}, {"o.$db": _EXISTS}]
_WITHOUT_EVENT: list[dict[str, Any]] = [
    {"op": {"$in": ["i", "u", "d"]}, "fromMigrate": True},
    {"op": "c", "o.applyOps": _EXISTS, "lsid": {"$exists": False}, "$or": _BY_COMMAND},
]


def refuse_other_log(client: Client, source: str, resume: Resume) -> None:
    """Raise IncarnationError if an entry that was read, or that existed during copies, is not in the oplog."""
    first, _ = oplog_range(client, source)
    for time, term in ((resume.event, 0), resume.entry):
        if time < first:
            # truncated from the oplog: if the position is too, opening the stream fails
            continue
        with named_errors(source, "oplog"):
            found = client["local"]["oplog.rs"].find_one({"ts": timestamp(time)}, {"t": 1})
        if found is None or (term and found.get("t") != term):
            raise IncarnationError(
                f"the oplog has no entry of {time >> 32}.{time & 0xFFFFFFFF}, which existed before: the set was "
                "restored from an earlier state",
                source=source,
                thread=1,
                position=f"{resume.time >> 32}.{resume.time & 0xFFFFFFFF}",
                hint="published changes are undone there: `lowwater source reset` copies all collections again",
            )


def writes_without_event(
    client: Client, source: str, config: MongoConfig, after: ClusterTime, to: ClusterTime
) -> Mapping[str, ClusterTime]:
    """Return captured collections with writes without an event, after `after` up to `to` → time of the last write.

    LogUnknownError: the balancer wrote them, so the set is a shard.
    """
    asked = {"ts": {"$gt": timestamp(after), "$lte": timestamp(to)}, "$or": _WITHOUT_EVENT}
    found: dict[str, ClusterTime] = {}
    with named_errors(source, "oplog"):
        for entry in client["local"]["oplog.rs"].find(asked).sort("$natural", 1):
            for name, is_moved in told(entry, source, "oplog", _written):
                if config.is_wanted(name):
                    time = found[name] = told(entry, source, "oplog", lambda e: cluster_time(e["ts"]))
                    if is_moved:
                        raise _moved(name, source, time)
    return found


def _written(entry: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """Return the collections of an entry, and whether the balancer has moved documents of them."""
    if entry["op"] != "c":
        return [(entry["ns"], bool(entry.get("fromMigrate")))]
    return [(one["ns"], bool(one.get("fromMigrate"))) for one in entry["o"]["applyOps"]]


def _moved(name: str, source: str, time: ClusterTime) -> LogUnknownError:
    return LogUnknownError(
        f"{name}: documents were moved by the balancer (fromMigrate), without events in the change stream",
        source=source,
        thread=1,
        position=f"{time >> 32}.{time & 0xFFFFFFFF}",
        hint="a shard cannot be captured, see docs/mongodb.md; once it is no longer a shard, reset the source",
    )
