"""Parses events of the binary log. An event is bytes with a header of 19 bytes, without its checksum.

Rows and table maps are parsed in `row_code.py` and `table_map.py`.
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
# MariaDB only
ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID, MARIA_GTID_LIST, START_ENCRYPTION = 160, 161, 162, 163, 164
QUERY_COMPRESSED = 165
_COMPRESSED_ROWS = {166: WRITE_ROWS_1, 167: UPDATE_ROWS_1, 168: DELETE_ROWS_1, 169: WRITE_ROWS, 170: UPDATE_ROWS,
                    171: DELETE_ROWS}  # fmt: skip

#: events that do not affect rows. INTVAR, RAND and USER_VAR belong to a row-changing statement, which is refused
PASSED_OVER = frozenset(
    (STOP, INTVAR, RAND, USER_VAR, IGNORABLE, ROWS_QUERY, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE,
     ANNOTATE_ROWS, BINLOG_CHECKPOINT, MARIA_GTID_LIST, START_ENCRYPTION)
)  # fmt: skip
COMPRESSED = frozenset((QUERY_COMPRESSED, *_COMPRESSED_ROWS))

# session settings of a statement
_SQL_MODE, _OLD_CATALOGUE, _CHARSET, _TIME_ZONE, _CATALOGUE = 1, 2, 4, 5, 6
_VARIABLE_BYTES = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSET: 6, 7: 2, 8: 2, 9: 8, 10: 4, 13: 3, 16: 1, 17: 8, 18: 2, 19: 1,
                   20: 1, 128: 3, 129: 8}  # fmt: skip

# compression of a transaction
_ZSTD, _NOT_COMPRESSED = 0, 255
#: bytes that are unpacked at once
_UNPACK_BYTES = 1 << 20

ARTIFICIAL = 0x20
_IGNORABLE_FLAG = 0x80
# flags of MariaDB GTID events
_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
# flags of their second flags byte
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
    #: empty for an anonymous transaction
    gtid: str
    commit_ts_us: int
    #: the group consists of the next statement
    is_standalone: bool = False
    #: MariaDB writes no BEGIN after it
    is_begun: bool = False
    is_xa: bool = False
    #: MariaDB: the start or rollback of a two-phase ALTER, which does not change a table
    is_idle: bool = False


class Query(NamedTuple):
    namespace: str
    text: bytes
    #: packed session settings
    variables: bytes = b""


class Session(NamedTuple):
    """Session settings that a statement's meaning depends on."""

    sql_mode: int = 0
    #: of the statement's text; 0: unknown
    collation: int = 0


class Rotate(NamedTuple):
    file: str
    position: int


class Prepared(NamedTuple):
    xid: Xid
    is_one_phase: bool


class Format(NamedTuple):
    server_version: str
    #: creation time of the file
    made: int
    has_checksums: bool


def header(e: bytes) -> Header:
    return Header(*_HEADER(e, 0))


def is_ignorable(e: bytes) -> bool:
    return bool(header(e).flags & _IGNORABLE_FLAG)


def has_checksum(e: bytes) -> bool:
    """Whether the last four bytes are the checksum of the bytes before them."""
    return len(e) >= HEADER + CHECKSUM_BYTES and zlib.crc32(e[:-4]) == _U32(e, len(e) - 4)[0]


def unknown(e: bytes, position: str) -> LogUnknownError:
    return LogUnknownError(
        f"an event of unknown kind {e[4]}: {e[:64].hex(' ')}", position=position,
        hint="report it with the server's version; nothing after this was captured",
    )  # fmt: skip


def format_description(e: bytes) -> Format:
    """Parse a FORMAT_DESCRIPTION event, including its checksum, which is always present."""
    version, text = struct.unpack_from("<H50s", e, HEADER)
    if version != 4 or e[HEADER + 56] != HEADER:
        raise LogUnknownError(f"a binary log of version {version}", hint="MySQL 8 and MariaDB 10.6 or later write 4")
    if e[HEADER + 57 + TABLE_MAP - 1] != 8:
        raise LogUnknownError("a binary log with short table numbers", hint="its server is older than MySQL 5.1")
    algorithm = e[-5]
    if algorithm not in (0, 1):
        raise LogUnknownError(f"a checksum of kind {algorithm}", hint="SET GLOBAL binlog_checksum = CRC32")
    return Format(text.rstrip(b"\x00").decode(), header(e).timestamp, algorithm == 1)


def rotate(e: bytes) -> Rotate:
    return Rotate(e[HEADER + 8 :].decode(), struct.unpack_from("<Q", e, HEADER)[0])


def gtid(e: bytes) -> Gtid:
    """Parse a GTID event of MySQL 8. The commit time on this server, in microseconds, follows the logical clock."""
    sid, number = uuid.UUID(bytes=e[HEADER + 1 : HEADER + 17]), struct.unpack_from("<q", e, HEADER + 17)[0]
    at = HEADER + 42
    if len(e) >= at + 7:
        # the highest bit means that the original commit time follows
        commit_ts_us = int.from_bytes(e[at : at + 7], "little") & (1 << 55) - 1
    else:
        commit_ts_us = header(e).timestamp * 1_000_000
    return Gtid(f"{sid}:{number}" if e[4] == GTID else "", commit_ts_us)


def tagged_gtid(e: bytes) -> Gtid:
    """Parse a tagged GTID event of MySQL 8.3 and later: fields of variable length, each preceded by its number."""
    sid, number, tag, commit_ts_us = b"", 0, b"", header(e).timestamp * 1_000_000
    version, at = _variable(e, HEADER)
    size, at = _variable(e, at)
    _, at = _variable(e, at)
    if version != 1 or size != len(e) - HEADER:
        raise LogUnknownError(f"a tagged GTID in an unknown format: {e[:64].hex(' ')}")
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
            # signed numbers have their sign in the lowest bit
            number = value >> 1 if field == 2 else number
            commit_ts_us = value if field == 6 else commit_ts_us
        else:
            # later fields are optional and not needed
            break
    if len(sid) != 16 or number < 1 or not tag:
        raise LogUnknownError(f"a tagged GTID in an unknown format: {e[:64].hex(' ')}")
    return Gtid(f"{uuid.UUID(bytes=sid)}:{tag.decode()}:{number}", commit_ts_us)


def _variable(e: bytes, at: int) -> tuple[int, int]:
    """Read a number of variable length: the count of trailing one bits is the number of bytes after the first."""
    first, more = e[at], 0
    while more < 8 and first >> more & 1:
        more += 1
    if at + 1 + more > len(e):
        raise struct.error("cut off")
    return int.from_bytes(e[at : at + 1 + more], "little") >> min(more + 1, 8), at + 1 + more


def maria_gtid(e: bytes) -> Gtid:
    """Parse a MariaDB GTID event. The log has the commit time in seconds only."""
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
    """Parse session settings. Their order is not defined, but servers write the needed ones before unknown ones."""
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


# -- compressed events -------------------------------------------------------------------------------------


def uncompressed(e: bytes) -> bytes:
    """Return the uncompressed event of a MariaDB compressed event."""
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
    """Uncompress: a byte with the method and the size of the length, the length, zlib data."""
    how = e[at]
    if how & 0x80 == 0 or how >> 4 & 7:
        raise LogUnknownError(f"an unknown compression method: {how}", hint="report it with the version")
    behind = at + 1 + (how & 7)
    size = int.from_bytes(e[at + 1 : behind], "big")
    # limits the output to the stated size
    unpack = zlib.decompressobj()
    try:
        found = unpack.decompress(e[behind:], size + 1)
    except zlib.error as error:
        raise LogCorruptError(f"a compressed event cannot be read: {error}") from error
    if len(found) != size or not unpack.eof:
        raise LogCorruptError(f"a compressed event does not have the stated {size} bytes")
    return found


def payload(e: bytes) -> Iterator[bytes]:
    """Yield the events of a compressed MySQL transaction, unpacked one by one, because together they may be ten
    thousand times as large. They have no checksums."""
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
        raise LogUnknownError(f"a transaction with an unknown compression method: {kind}")
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
    # imported here because few servers compress transactions
    import pyarrow as pa

    try:
        with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(e).slice(at)), "zstd") as stream:
            while part := stream.read(_UNPACK_BYTES):
                yield part
    except (OSError, pa.ArrowException) as error:
        raise LogCorruptError(f"a compressed transaction cannot be read: {error}") from error
