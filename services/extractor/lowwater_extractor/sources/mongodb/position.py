"""Resume tokens, and the position of a change stream.

A token is created by the server and opaque, except that it begins with a cluster time, by which it is compared with
events. The server sends one with every event, and one with every batch: all events before the latter have been sent.

A token contains the `_id` of its event. If that is of a type which its text does not tell (1.5, a Decimal128), the
server sends the type separately (`_typeBits`), and does not accept the token without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple, NewType

from bson.timestamp import Timestamp

from lowwater.errors import CodecError, LogUnknownError, StartRefusedError

#: seconds since 1970 in the high 32 bits, a counter in the low 32 bits; ordered as an integer
ClusterTime = NewType("ClusterTime", int)
NO_TIME = ClusterTime(0)

#: type byte of a timestamp in the KeyString encoding of tokens
_TIMESTAMP = 0x82


def time_of(token: str) -> ClusterTime:
    try:
        raw = bytes.fromhex(token[:18])
    except ValueError as error:
        raise _unknown(token) from error
    if len(raw) != 9 or raw[0] != _TIMESTAMP:
        raise _unknown(token)
    return ClusterTime(int.from_bytes(raw[1:]))


def packed_token(text: str, type_bits: bytes) -> str:
    return f"{text}.{type_bits.hex()}"


def token_document(token: str) -> dict[str, Any]:
    """Return the token as the server takes it."""
    text, _, type_bits = token.partition(".")
    return {"_data": text, **({"_typeBits": bytes.fromhex(type_bits)} if type_bits else {})}


def _unknown(token: str) -> LogUnknownError:
    return LogUnknownError(
        f"a resume token of an unknown format: {token[:40]}",
        hint="is the server newer than lowwater? upgrade it",
    )


def timestamp(time: int) -> Timestamp:
    return Timestamp(time >> 32, time & 0xFFFFFFFF)


def cluster_time(timestamp: Timestamp) -> ClusterTime:
    return ClusterTime(timestamp.time << 32 | timestamp.inc)


class LogEntry(NamedTuple):
    """A majority-committed entry of the oplog: it is never rolled back, unless the set is restored from a backup."""

    time: ClusterTime
    term: int


_NO_ENTRY = LogEntry(NO_TIME, 0)


@dataclass(frozen=True, slots=True)
class Resume:
    """The position of a stream. Exactly the events up to and including `time` are before `token`."""

    token: str
    time: ClusterTime
    #: the database of the stream that the token belongs to; empty: the stream of all databases
    database: str = ""
    #: up to where the stream was read: events between the two tokens may be incomplete, and are read again
    next_token: str = ""
    #: time of the last event that was read, which is that of an oplog entry. 0: there was none
    event: ClusterTime = NO_TIME
    #: the last entry of the oplog when it was last queried; copied documents are not newer
    entry: LogEntry = _NO_ENTRY
    #: time up to which the oplog was searched for writes that the stream does not contain
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
