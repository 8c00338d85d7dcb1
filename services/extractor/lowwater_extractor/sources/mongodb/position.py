"""Resume tokens, and what a position holds of them.

A token is the server's own, and opaque but for its beginning: a cluster time, by which tokens compare with events. The
server sends one with every event, and one with every batch: all events before that have been sent.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType

from bson.timestamp import Timestamp

from lowwater.errors import CodecError, LogUnknownError, StartRefusedError

#: seconds since 1970 in the high half, a count in the low one: as one number it compares
ClusterTime = NewType("ClusterTime", int)
NO_TIME = ClusterTime(0)

#: how a timestamp begins in the keys that tokens are made of
_TIMESTAMP = 0x82


def time_of(token: str) -> ClusterTime:
    try:
        raw = bytes.fromhex(token[:18])
    except ValueError as error:
        raise _unknown(token) from error
    if len(raw) != 9 or raw[0] != _TIMESTAMP:
        raise _unknown(token)
    return ClusterTime(int.from_bytes(raw[1:]))


def _unknown(token: str) -> LogUnknownError:
    return LogUnknownError(
        f"a resume token of a kind that is not known here: {token[:40]}",
        hint="is the server newer than lowwater? upgrade it",
    )


def timestamp(time: int) -> Timestamp:
    return Timestamp(time >> 32, time & 0xFFFFFFFF)


def cluster_time(timestamp: Timestamp) -> ClusterTime:
    return ClusterTime(timestamp.time << 32 | timestamp.inc)


class LogEntry(NamedTuple):
    """An entry of the oplog that a majority has: it stays, unless the set is restored from a backup."""

    time: ClusterTime
    term: int


_NO_ENTRY = LogEntry(NO_TIME, 0)


@dataclass(frozen=True, slots=True)
class Resume:
    """Where a stream is read on from. Everything up to and with `time` lies before `token`, and nothing else."""

    token: str
    time: ClusterTime
    #: the database whose stream it is a token of; empty: that of all databases
    database: str = ""
    #: how far the stream had been read: what lies between the two was not known to be whole, and comes again
    next_token: str = ""
    #: the last event that was read: an entry of the oplog has this time. 0: there was none
    event: ClusterTime = NO_TIME
    #: an entry that was in the oplog when it was last asked; what was copied is no newer
    entry: LogEntry = _NO_ENTRY
    #: up to here the oplog was searched for what the stream does not tell
    searched: ClusterTime = NO_TIME

    def pack(self) -> bytes:
        found: dict[str, Any] = {"_data": self.token, "time": self.time, "database": self.database}
        if self.next_token not in ("", self.token):
            found["next_data"] = self.next_token
        found |= {"event": self.event, "entry": list(self.entry), "searched": self.searched}
        return json.dumps(found).encode()

    @classmethod
    def unpack(cls, data: bytes, source: str) -> Resume:
        try:
            found: dict[str, Any] = json.loads(data)
            if "tables" in found:
                raise StartRefusedError(
                    "the source was captured in the mode incremental, but the config has the mode cdc",
                    source=source,
                    hint="the mode of a source cannot be changed: add a source with another name for the other mode",
                )
            time = ClusterTime(int(found["time"]))
            entry_time, term = found.get("entry", (0, 0))
            return cls(
                found["_data"], time, found["database"], found.get("next_data", ""),
                ClusterTime(int(found.get("event", 0))), LogEntry(ClusterTime(int(entry_time)), int(term)),
                ClusterTime(int(found.get("searched", time))),
            )  # fmt: skip
        except (ValueError, TypeError, KeyError) as error:
            raise CodecError(
                "the position is not one of a change stream", source=source, hint="reset the source's position"
            ) from error
