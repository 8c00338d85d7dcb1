"""The oplog itself, asked beside the stream: for what a change stream does not tell.

- **Whether it is still the same log.** A replica set that was restored from files of an earlier time has the same
  identity, and a change stream that is begun by a time goes on there without an error, though changes that were read
  before are undone. So entries that were in the oplog, and that a majority had, are looked up at each start.
- **Writes without an event.** `applyOps` (by which `mongorestore --oplogReplay` writes) is one entry of the oplog, of
  which a change stream of MongoDB 6 shows nothing. Nor does it show what a balancer moves from shard to shard.
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
#: what a command of a user has beside its operations; batches of the server's own, which have events, do not
_BY_COMMAND = [{"o.lsid": _EXISTS}, {"o.$db": _EXISTS}]
_WITHOUT_EVENT: list[dict[str, Any]] = [
    {"op": {"$in": ["i", "u", "d"]}, "fromMigrate": True},
    {"op": "c", "o.applyOps": _EXISTS, "lsid": {"$exists": False}, "$or": _BY_COMMAND},
]


def refuse_other_log(client: Client, source: str, resume: Resume) -> None:
    """IncarnationError: an entry that was read, or that was there when tables were copied, is not in the oplog."""
    first, _ = oplog_range(client, source)
    for time, term in ((resume.event, 0), resume.entry):
        if time < first:
            # the oplog lets go of what is old: whether enough is left, the stream says
            continue
        with named_errors(source, "oplog"):
            found = client["local"]["oplog.rs"].find_one({"ts": timestamp(time)}, {"t": 1})
        if found is None or (term and found.get("t") != term):
            raise IncarnationError(
                f"the oplog has no entry of {time >> 32}.{time & 0xFFFFFFFF}, which was there before: the set was "
                "restored from an earlier state",
                source=source,
                thread=1,
                position=f"{resume.time >> 32}.{resume.time & 0xFFFFFFFF}",
                hint="changes that were read are undone there: `lowwater source reset`, and all is copied again",
            )


def writes_without_event(
    client: Client, source: str, config: MongoConfig, after: ClusterTime, to: ClusterTime
) -> Mapping[str, ClusterTime]:
    """Captured collections that were written to without an event, above `after` up to `to`, and when they were last.

    LogUnknownError: by a balancer, so the set is a shard.
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
    """Collections, and whether a balancer has moved documents of them."""
    if entry["op"] != "c":
        return [(entry["ns"], bool(entry.get("fromMigrate")))]
    return [(one["ns"], bool(one.get("fromMigrate"))) for one in entry["o"]["applyOps"]]


def _moved(name: str, source: str, time: ClusterTime) -> LogUnknownError:
    return LogUnknownError(
        f"{name}: documents were moved by a balancer (fromMigrate), and the change stream does not tell of it",
        source=source,
        thread=1,
        position=f"{time >> 32}.{time & 0xFFFFFFFF}",
        hint="a shard cannot be captured, see docs/mongodb.md; once it is none any more, reset the source",
    )
