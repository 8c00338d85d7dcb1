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
from lowwater_extractor.sources.mysql.ddl.statements import Xid
from lowwater_extractor.sources.mysql.wire.table_map import packed

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

# settings of a session that come with a statement
_SQL_MODE, _OLD_CATALOGUE, _CHARSET, _TIME_ZONE, _CATALOGUE = 1, 2, 4, 5, 6
_VARIABLE_BYTES = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1,
                   20: 1, 128: 3, 129: 8}  # fmt: skip

# how a transaction is compressed
_ZSTD, _NOT_COMPRESSED = 0, 255
#: of a compressed transaction, at once
_UNPACK_BYTES = 1 << 20

ARTIFICIAL = 0x20
_IGNORABLE_FLAG = 0x80
# of MariaDB's GTIDs
_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
# of the byte behind them
_START_ALTER, _ROLLBACK_ALTER = 2, 8

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
    #: MariaDB's log may have the start of an ALTER, and its end if it has failed: neither does anything to a table
    is_idle: bool = False


class Query(NamedTuple):
    namespace: str
    text: bytes
    #: settings of the session that ran it, packed
    variables: bytes = b""


class Session(NamedTuple):
    """What a statement's meaning depends on."""

    sql_mode: int = 0
    #: of the statement's text; 0: not said
    collation: int = 0


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


def tagged_gtid(e: bytes) -> Gtid:
    """Of MySQL 8.3 and later: numbers of variable length, each field with its own number in front."""
    sid, number, tag, commit_ts_us = b"", 0, b"", header(e).timestamp * 1_000_000
    version, at = _variable(e, HEADER)
    size, at = _variable(e, at)
    _, at = _variable(e, at)
    if version != 1 or size != len(e) - HEADER:
        raise LogUnknownError(f"a GTID with a tag in a form that is not known: {e[:64].hex(' ')}")
    while at < len(e):
        field, at = _variable(e, at)
        if field == 1:
            values = []
            for _ in range(16):
                value, at = _variable(e, at)
                values.append(value)
            sid = bytes(values)
        elif field == 3:
            length, at = _variable(e, at)
            tag, at = e[at : at + length], at + length
        elif field <= 11:
            value, at = _variable(e, at)
            # numbers that may be negative have their sign in the lowest bit
            number = value >> 1 if field == 2 else number
            commit_ts_us = value if field == 6 else commit_ts_us
        else:
            # it may be ignored, and nothing that is needed comes after it
            break
    if len(sid) != 16 or number < 1 or not tag:
        raise LogUnknownError(f"a GTID with a tag in a form that is not known: {e[:64].hex(' ')}")
    return Gtid(f"{uuid.UUID(bytes=sid)}:{tag.decode()}:{number}", commit_ts_us)


def _variable(e: bytes, at: int) -> tuple[int, int]:
    """The lowest bits that are set say how many bytes follow the first one."""
    first, more = e[at], 0
    while more < 8 and first >> more & 1:
        more += 1
    if at + 1 + more > len(e):
        raise struct.error("cut off")
    return int.from_bytes(e[at : at + 1 + more], "little") >> min(more + 1, 8), at + 1 + more


def maria_gtid(e: bytes) -> Gtid:
    """Seconds are all that MariaDB's log has of a commit's time."""
    head = header(e)
    number, domain, flags = struct.unpack_from("<QIB", e, HEADER)
    is_standalone = bool(flags & _STANDALONE)
    at = HEADER + 13 + (8 if flags & _GROUP_COMMIT else 0)
    if flags & (_PREPARED_XA | _COMPLETED_XA):
        at += 6 + e[at + 4] + e[at + 5]
    more = e[at] if at < len(e) else 0
    return Gtid(
        f"{domain}-{head.server}-{number}", head.timestamp * 1_000_000, is_standalone,
        is_begun=not is_standalone, is_xa=bool(flags & _PREPARED_XA),
        is_idle=bool(more & (_START_ALTER | _ROLLBACK_ALTER)),
    )  # fmt: skip


def query(e: bytes) -> Query:
    names, variables = e[HEADER + 8], struct.unpack_from("<H", e, HEADER + 11)[0]
    start = HEADER + 13
    at = start + variables
    namespace = e[at : at + names].decode(errors="surrogateescape")
    return Query(namespace, e[at + names + 1 :], e[start:at])


def session(variables: bytes) -> Session:
    """They have numbers, in no promised order; those that are needed come before any that is not known."""
    sql_mode = collation = at = 0
    while at < len(variables):
        kind = variables[at]
        at += 1
        if kind == _SQL_MODE:
            (sql_mode,) = struct.unpack_from("<Q", variables, at)
        elif kind == _CHARSET:
            (collation,) = struct.unpack_from("<H", variables, at)
        if kind in _VARIABLE_BYTES:
            at += _VARIABLE_BYTES[kind]
        elif kind in (_CATALOGUE, _TIME_ZONE):
            at += 1 + variables[at]
        elif kind == _OLD_CATALOGUE:
            at += 2 + variables[at]
        else:
            break
    return Session(sql_mode, collation)


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
    # no more than it says is unpacked
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(e[behind:], size + 1)
    except zlib.error as error:
        raise LogCorruptError(f"a compressed event cannot be read: {error}") from error
    if len(found) != size or not unpack.eof:
        raise LogCorruptError(f"a compressed event does not have the {size} bytes that it says")
    return found


def payload(e: bytes) -> Iterator[bytes]:
    """The events of a MySQL transaction that is compressed as a whole, unpacked one after the other: all of them may be
    ten thousand times as large. They have no checksums of their own."""
    at, kind, size = HEADER, 0, -1
    while True:
        field, at = packed(e, at)
        if field == 0:
            break
        length, at = packed(e, at)
        value, _ = packed(e, at)
        at += length
        kind, size = (value if field == 2 else kind), (value if field == 3 else size)
    if kind == _ZSTD and size >= 0:
        parts = _unpacked(e, at)
    elif kind == _NOT_COMPRESSED:
        parts, size = iter((e[at:],)), len(e) - at
    else:
        raise LogUnknownError(f"a transaction compressed by a method that is not known: {kind}")
    data = bytearray()
    for part in parts:
        data += part
        size -= len(part)
        at = 0
        while len(data) - at >= HEADER:
            (length,) = _U32(data, at + 9)
            if length < HEADER:
                raise struct.error("too short")
            if at + length > len(data):
                break
            yield bytes(data[at : at + length])
            at += length
        del data[:at]
    if data or size:
        raise struct.error("cut off")


def _unpacked(e: bytes, at: int) -> Iterator[bytes]:
    # for those servers only that are told to compress
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(e).slice(at)), "zstd") as stream:
            while part := stream.read(_UNPACK_BYTES):
                yield part
    except (OSError, pa.ArrowException) as error:
        raise LogCorruptError(f"a compressed transaction cannot be read: {error}") from error
