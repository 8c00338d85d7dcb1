"""The messages of pgoutput, protocol 2. Pure: bytes in, values out. A message that is not known is never passed over.

What is hot (rows) is read by the code that each relation compiles for itself; here is all the rest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.postgres.wire.lsn import Lsn

#: microseconds from 1970 to 2000, where PostgreSQL's time begins
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
    #: the same as `xid` where all of it is rolled back
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
    #: all that was written before this has been decoded and sent
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
    # an empty name is pg_catalog
    return RelationMessage(oid, namespace or "pg_catalog", name, identity, tuple(columns))


def truncated(m: bytes, at: int) -> list[bytes]:
    """The oids of the tables, as they are written."""
    (count,) = _U32.unpack_from(m, at)
    at += 5  # and a byte of options: cascade, restart identity
    return [m[at + 4 * i : at + 4 * i + 4] for i in range(count)]


def keepalive(m: bytes) -> Keepalive:
    """Not of pgoutput, but of the replication protocol around it."""
    wal_end, _ts, reply = _KEEPALIVE.unpack_from(m, 1)
    return Keepalive(Lsn(wal_end), bool(reply))


def unknown(source: str, m: bytes, lsn: str) -> LogUnknownError:
    return LogUnknownError(
        f"a message that is not known: {m[:64].hex(' ')}{' …' if len(m) > 64 else ''}",
        source=source,
        thread=1,
        position=lsn,
        hint="is the server newer than 18? upgrade lowwater; nothing behind this was captured",
    )
