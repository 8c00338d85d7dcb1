"""Parses pgoutput messages, protocol version 2. An unknown message raises LogUnknownError, it is never skipped.

Rows are the hot path and are read by code generated per relation (`relations.py`); all other messages are read here.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.postgres.wire.lsn import Lsn

#: microseconds from 1970-01-01 to PostgreSQL's epoch, 2000-01-01
EPOCH_2000_US = 946_684_800_000_000

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_STREAM_START = struct.Struct(">IB")
_STREAM_COMMIT = struct.Struct(">IBQQq")
_STREAM_ABORT = struct.Struct(">II")
_COLUMN = struct.Struct(">Ii")
_KEEPALIVE = struct.Struct(">QqB")
_U16 = struct.Struct(">H")
_U32 = struct.Struct(">I")


class Begin(NamedTuple):
    final_lsn: Lsn
    commit_ts_us: int
    xid: int


class CommitMessage(NamedTuple):
    lsn: Lsn
    end_lsn: Lsn
    commit_ts_us: int


class StreamStart(NamedTuple):
    xid: int
    is_first: bool


class StreamCommit(NamedTuple):
    xid: int
    lsn: Lsn
    end_lsn: Lsn
    commit_ts_us: int


class StreamAbort(NamedTuple):
    xid: int
    #: equal to `xid` if the whole transaction is rolled back
    subxid: int


class RelationColumn(NamedTuple):
    name: str
    type_oid: int
    typmod: int
    is_key: bool


@dataclass(frozen=True, slots=True)
class RelationMessage:
    oid: int
    namespace: str
    name: str
    #: d(efault), n(othing), f(ull), i(ndex)
    identity: str
    columns: tuple[RelationColumn, ...]


class Keepalive(NamedTuple):
    #: everything before this LSN has been decoded and sent
    wal_end: Lsn
    wants_reply: bool


def _text(m: bytes, at: int) -> tuple[str, int]:
    end = m.index(0, at)
    return m[at:end].decode(), end + 1


def begin(m: bytes, at: int) -> Begin:
    lsn, ts, xid = _BEGIN.unpack_from(m, at)
    return Begin(Lsn(lsn), ts + EPOCH_2000_US, xid)


def commit(m: bytes, at: int) -> CommitMessage:
    _flags, lsn, end, ts = _COMMIT.unpack_from(m, at)
    return CommitMessage(Lsn(lsn), Lsn(end), ts + EPOCH_2000_US)


def stream_start(m: bytes, at: int) -> StreamStart:
    xid, first = _STREAM_START.unpack_from(m, at)
    return StreamStart(xid, bool(first))


def stream_commit(m: bytes, at: int) -> StreamCommit:
    xid, _flags, lsn, end, ts = _STREAM_COMMIT.unpack_from(m, at)
    return StreamCommit(xid, Lsn(lsn), Lsn(end), ts + EPOCH_2000_US)


def stream_abort(m: bytes, at: int) -> StreamAbort:
    return StreamAbort(*_STREAM_ABORT.unpack_from(m, at))


def relation(m: bytes, at: int) -> RelationMessage:
    (oid,) = _U32.unpack_from(m, at)
    namespace, at = _text(m, at + 4)
    name, at = _text(m, at)
    identity = chr(m[at])
    (count,) = _U16.unpack_from(m, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        is_key = bool(m[at] & 1)
        column, at = _text(m, at + 1)
        type_oid, typmod = _COLUMN.unpack_from(m, at)
        columns.append(RelationColumn(column, type_oid, typmod, is_key))
        at += 8
    # an empty namespace means pg_catalog
    return RelationMessage(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def truncated(m: bytes, at: int) -> list[bytes]:
    """Return the oids of the tables, as 4 bytes each."""
    (count,) = _U32.unpack_from(m, at)
    at += 5  # the count, and a byte of options: cascade, restart identity
    return [m[at + 4 * i : at + 4 * i + 4] for i in range(count)]


def keepalive(m: bytes) -> Keepalive:
    """Parse a keepalive, a message of the replication protocol, not of pgoutput."""
    wal_end, _ts, reply = _KEEPALIVE.unpack_from(m, 1)
    return Keepalive(Lsn(wal_end), bool(reply))


def unknown(source: str, m: bytes, lsn: str) -> LogUnknownError:
    return LogUnknownError(
        f"an unknown message: {m[:64].hex(' ')}{' …' if len(m) > 64 else ''}",
        source=source,
        thread=1,
        position=lsn,
        hint="is the server newer than 18? upgrade lowwater; nothing after this was captured",
    )
