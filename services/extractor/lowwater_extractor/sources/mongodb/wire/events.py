"""Parses change events in raw BSON, and decodes only the fields that are needed."""

from __future__ import annotations

from typing import NamedTuple

from lowwater.errors import LogCorruptError
from lowwater_extractor.sources.mongodb.position import ClusterTime, packed_token
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb


class Reply(NamedTuple):
    """The reply to an aggregate or getMore command."""

    #: id of the cursor; 0: the server has closed it
    cursor: int
    #: raw BSON of the events
    events: list[bytes]
    #: the resume token of the batch: all events before it have been sent
    token: str


class Event(NamedTuple):
    """One event: raw BSON, and the offsets of its values."""

    data: bytes
    time: ClusterTime
    ts_us: int
    kind: bytes
    #: raw BSON of the namespace, used as a lookup key
    namespace: bytes
    #: raw session and transaction number; empty outside of transactions
    transaction: bytes
    places: dict[bytes, int]

    @property
    def token(self) -> str:
        try:
            return token_in(self.data, self.places[b"_id"])
        except rb.DAMAGE as error:
            raise LogCorruptError(
                "an event whose resume token cannot be read", hint="restart the source; if the error recurs, report it"
            ) from error

    def document(self, name: bytes) -> int | None:
        """Return the offset of a document; None if it is missing or null."""
        at = self.places.get(name)
        # before the value are the type, the name and a zero byte
        return at if at is not None and self.data[at - len(name) - 2] == rb.DOCUMENT else None


def read_reply(data: bytes) -> Reply:
    """Parse a whole reply. LogCorruptError: it is not a valid reply of a change stream."""
    try:
        return _read_reply(data)
    except rb.DAMAGE as error:
        raise LogCorruptError(
            f"an answer of {len(data)} bytes that is damaged, or is not one of a change stream ({error!r})",
            hint="restart the source; if the error recurs, check the server's log, and proxies in between",
        ) from error


def _read_reply(data: bytes) -> Reply:
    cursor = rb.fields(data, rb.fields(data)[b"cursor"].at)
    batch = cursor.get(b"nextBatch") or cursor[b"firstBatch"]
    token = cursor.get(b"postBatchResumeToken")
    if token is None:
        raise LogCorruptError("an answer without a resume token", hint="is this a change stream of MongoDB 6 or newer?")
    (id_,) = rb.int64(data, cursor[b"id"].at)
    return Reply(id_, split(data, batch.at), token_in(data, token.at))


def split(data: bytes, at: int) -> list[bytes]:
    """Return the documents of an array, whose names are 0, 1, 2 …"""
    last = at + rb.length(data, at)[0] - 1
    at += 4
    found = []
    number, digits, more = 0, 1, 10
    while at < last:
        # one byte of type, the digits of the name, and a zero byte
        at += digits + 2
        end = at + rb.length(data, at)[0]
        found.append(data[at:end])
        at = end
        number += 1
        if number == more:
            digits, more = digits + 1, more * 10
    if at != last:
        raise LogCorruptError("an answer whose length is wrong", hint="restart the source; report it")
    return found


def token_in(data: bytes, at: int) -> str:
    found = rb.fields(data, at)
    value, type_bits = found[b"_data"], found.get(b"_typeBits")
    if value.type != rb.STRING or (type_bits is not None and type_bits.type != rb.BINARY):
        raise ValueError("a token that is not a string")
    text = rb.string(data, value).decode()
    # length and subtype are before the bytes
    return text if type_bits is None else packed_token(text, data[type_bits.at + 5 : type_bits.end])


def places(data: bytes) -> dict[bytes, int]:
    """Return the offsets of a document's values by name. As `rb.fields`, but inlined: it runs for every event."""
    found: dict[bytes, int] = {}
    at, last = 4, len(data) - 1
    find, sizes, length = data.index, rb.SIZES, rb.length
    while at < last:
        type_, name_end = data[at], find(0, at + 1)
        found[data[at + 1 : name_end]] = at = name_end + 1
        size = sizes.get(type_, rb.OTHER)
        if size >= 0:
            at += size
        elif size == rb.COUNTED_WITH_ITSELF:
            at += length(data, at)[0]
        elif size == rb.COUNTED:
            at += length(data, at)[0] + 4
        else:
            at = rb.end_of(data, type_, at)
    if at != last or length(data, 0)[0] != len(data):
        raise ValueError("its length is wrong")
    return found


def read_event(data: bytes) -> Event:
    found = places(data)
    (time,) = rb.uint64(data, found[b"clusterTime"])
    at = found[b"operationType"]
    kind = data[at + 4 : at + 3 + rb.length(data, at)[0]]
    wall = found.get(b"wallTime")
    ts_us = rb.int64(data, wall)[0] * 1_000 if wall is not None else (time >> 32) * 1_000_000
    namespace = transaction = b""
    if (at := found.get(b"ns", 0)) != 0:
        namespace = data[at : at + rb.length(data, at)[0]]
    if (at := found.get(b"txnNumber", 0)) != 0:
        session = found[b"lsid"]
        transaction = data[session : session + rb.length(data, session)[0]] + data[at : at + 8]
    return Event(data, time, ts_us, kind, namespace, transaction, found)


def full_name(namespace: bytes, at: int = 0) -> str:
    """Return `database.collection`; `database.` for events that concern a database."""
    found = rb.fields(namespace, at)
    parts = [rb.string(namespace, found[name]).decode() if name in found else "" for name in (b"db", b"coll")]
    return ".".join(parts)


def transaction_name(transaction: bytes) -> str:
    """Return the transaction id: session and number."""
    try:
        session = rb.fields(transaction)[b"id"]
        (number,) = rb.int64(transaction, len(transaction) - 8)
    except rb.DAMAGE as error:
        raise LogCorruptError(
            "an event whose session cannot be read", hint="restart the source; if the error recurs, report it"
        ) from error
    return f"{transaction[session.at + 5 : session.end].hex()}-{number}"
