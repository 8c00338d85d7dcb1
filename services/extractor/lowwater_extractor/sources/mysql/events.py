"""Events of the binary log, taken apart. Pure: an event is bytes with a header of 19, without its checksum.

Rows and table maps, which are nearly all of a log, have modules of their own.
"""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from lowwater.errors import LogCorruptError, LogUnknownError
from lowwater_extractor.sources.mysql.statements import Xid
from lowwater_extractor.sources.mysql.table_map import packed

HEADER = 19
CHECKSUM_BYTES = 4

QUERY, STOP, ROTATE, INTVAR, RAND, USER_VAR, FORMAT_DESCRIPTION, XID = 2, 3, 4, 5, 13, 14, 15, 16
BEGIN_LOAD_QUERY, EXECUTE_LOAD_QUERY, TABLE_MAP = 17, 18, 19
WRITE_ROWS_1, UPDATE_ROWS_1, DELETE_ROWS_1, INCIDENT, HEARTBEAT = 23, 24, 25, 26, 27
IGNORABLE, ROWS_QUERY, WRITE_ROWS, UPDATE_ROWS, DELETE_ROWS = 28, 29, 30, 31, 32
GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, XA_PREPARE = 33, 34, 35, 36, 37, 38
PARTIAL_UPDATE_ROWS, TRANSACTION_PAYLOAD, HEARTBEAT_2, GTID_TAGGED = 39, 40, 41, 42
# MariaDB's own
ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID, MARIA_GTID_LIST, START_ENCRYPTION = 160, 161, 162, 163, 164
QUERY_COMPRESSED = 165
_COMPRESSED_ROWS = {166: WRITE_ROWS_1, 167: UPDATE_ROWS_1, 168: DELETE_ROWS_1, 169: WRITE_ROWS, 170: UPDATE_ROWS,
                    171: DELETE_ROWS}  # fmt: skip

#: say nothing about rows. An INTVAR and its like belong to a statement, which is refused by itself
PASSED_OVER = frozenset(
    (STOP, INTVAR, RAND, USER_VAR, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE,
     ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID_LIST, START_ENCRYPTION)
)  # fmt: skip
COMPRESSED = frozenset((QUERY_COMPRESSED, *_COMPRESSED_ROWS))

ARTIFICIAL = 0x20
_IGNORABLE_FLAG = 0x80
# of MariaDB's GTIDs
_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128

_U32 = struct.Struct("<I").unpack_from
_HEADER = struct.Struct("<IBIIIH").unpack_from


class Header(NamedTuple):
    timestamp: int
    kind: int
    server: int
    size: int
    log_pos: int
    flags: int


class Gtid(NamedTuple):
    #: empty of an anonymous one
    gtid: str
    commit_ts_us: int
    #: the next statement is all of it
    is_standalone: bool = False
    #: MariaDB needs no BEGIN behind it
    is_begun: bool = False
    is_xa: bool = False


class Query(NamedTuple):
    namespace: str
    text: bytes


class Rotate(NamedTuple):
    file: str
    position: int


class Prepared(NamedTuple):
    xid: Xid
    is_one_phase: bool


class Format(NamedTuple):
    server_version: str
    #: when the file was begun
    made: int
    has_checksums: bool


def header(e: bytes) -> Header:
    return Header(*_HEADER(e, 0))


def is_ignorable(e: bytes) -> bool:
    return bool(header(e).flags & _IGNORABLE_FLAG)


def has_checksum(e: bytes) -> bool:
    """Whether its last four bytes are the checksum of all before them."""
    return len(e) >= HEADER + CHECKSUM_BYTES and zlib.crc32(e[:-4]) == _U32(e, len(e) - 4)[0]


def unknown(e: bytes, position: str) -> LogUnknownError:
    return LogUnknownError(
        f"an event of kind {e[4]}, which is not known: {e[:64].hex(' ')}", position=position,
        hint="report it with the server's version; nothing behind this was captured",
    )  # fmt: skip


def format_description(e: bytes) -> Format:
    """With its checksum, which it has in any case."""
    version, text = struct.unpack_from("<H50s", e, HEADER)
    if version != 4 or e[HEADER + 56] != HEADER:
        raise LogUnknownError(f"a binary log of version {version}", hint="MySQL 8 and MariaDB 10.6 or later write 4")
    if e[HEADER + 57 + TABLE_MAP - 1] != 8:
        raise LogUnknownError("a binary log with short table numbers", hint="it is of a server before MySQL 5.1")
    algorithm = e[-5]
    if algorithm not in (0, 1):
        raise LogUnknownError(f"a checksum of kind {algorithm}", hint="SET GLOBAL binlog_checksum = CRC32")
    return Format(text.rstrip(b"\x00").decode(), header(e).timestamp, algorithm == 1)


def rotate(e: bytes) -> Rotate:
    return Rotate(e[HEADER + 8 :].decode(), struct.unpack_from("<Q", e, HEADER)[0])


def gtid(e: bytes) -> Gtid:
    """Of MySQL 8: the time of the commit on this server, in microseconds, behind the numbers for parallel replicas."""
    sid, number = uuid.UUID(bytes=e[HEADER + 1 : HEADER + 17]), struct.unpack_from("<q", e, HEADER + 17)[0]
    at = HEADER + 42
    if len(e) >= at + 7:
        # the highest bit says that the time of the first commit, on another server, follows
        commit_ts_us = int.from_bytes(e[at : at + 7], "little") & (1 << 55) - 1
    else:
        commit_ts_us = header(e).timestamp * 1_000_000
    return Gtid(f"{sid}:{number}" if e[4] == GTID else "", commit_ts_us)


def maria_gtid(e: bytes) -> Gtid:
    """Seconds are all that MariaDB's log has of a commit's time."""
    head = header(e)
    number, domain, flags = struct.unpack_from("<QIB", e, HEADER)
    is_standalone = bool(flags & _STANDALONE)
    return Gtid(
        f"{domain}-{head.server}-{number}", head.timestamp * 1_000_000, is_standalone,
        is_begun=not is_standalone, is_xa=bool(flags & _PREPARED_XA),
    )  # fmt: skip


def query(e: bytes) -> Query:
    names, variables = e[HEADER + 8], struct.unpack_from("<H", e, HEADER + 11)[0]
    at = HEADER + 13 + variables
    namespace = e[at : at + names].decode(errors="surrogateescape")
    return Query(namespace, e[at + names + 1 :])


def prepared(e: bytes) -> Prepared:
    is_one_phase, format_, size, branch = struct.unpack_from("<?iII", e, HEADER)
    data = e[HEADER + 13 :]
    if len(data) < size + branch:
        raise struct.error("cut off")
    return Prepared(Xid(format_, data[:size], data[size : size + branch]), is_one_phase)


# -- compressed ones ---------------------------------------------------------------------------------------


def uncompressed(e: bytes) -> bytes:
    """MariaDB's compressed events, as the event that they stand for."""
    kind = e[4]
    if kind == QUERY_COMPRESSED:
        names, variables = e[HEADER + 8], struct.unpack_from("<H", e, HEADER + 11)[0]
        at = HEADER + 13 + variables + names + 1
        return e[:4] + bytes([QUERY]) + e[5:at] + _inflated(e, at)
    meant = _COMPRESSED_ROWS[kind]
    at = HEADER + 8
    if meant >= WRITE_ROWS:
        at += struct.unpack_from("<H", e, at)[0]
    count, at = packed(e, at)
    at += (count + 7) // 8 * (2 if meant in (UPDATE_ROWS_1, UPDATE_ROWS) else 1)
    return e[:4] + bytes([meant]) + e[5:at] + _inflated(e, at)


def _inflated(e: bytes, at: int) -> bytes:
    """A byte that says how, the size in as many bytes as that one says, zlib."""
    how = e[at]
    if how & 0x80 == 0 or how >> 4 & 7:
        raise LogUnknownError(f"compressed by a method that is not known: {how}", hint="report it with the version")
    behind = at + 1 + (how & 7)
    size = int.from_bytes(e[at + 1 : behind], "big")
    try:
        found = zlib.decompress(e[behind:], bufsize=max(1, size))
    except zlib.error as error:
        raise LogCorruptError(f"a compressed event cannot be read: {error}") from error
    if len(found) != size:
        raise LogCorruptError(f"a compressed event of {len(found)} bytes says that it has {size}")
    return found


def payload(e: bytes) -> Iterator[bytes]:
    """The events of a MySQL transaction that is compressed as a whole; they have no checksums of their own."""
    at, kind, size = HEADER, 0, -1
    while True:
        field, at = packed(e, at)
        if field == 0:
            break
        length, at = packed(e, at)
        value, _ = packed(e, at)
        at += length
        kind, size = (value if field == 2 else kind), (value if field == 3 else size)
    data = e[at:]
    if kind == 0 and size >= 0:
        # for those servers only that are told to compress
        import pyarrow as pa

        data = pa.Codec("zstd").decompress(data, size, asbytes=True)
    elif kind != 255:
        raise LogUnknownError(f"a transaction compressed by a method that is not known: {kind}")
    at = 0
    while at < len(data):
        (length,) = _U32(data, at + 9)
        if length < HEADER or at + length > len(data):
            raise struct.error("cut off")
        yield data[at : at + length]
        at += length
