"""The redo format: structs, constants, SCN forms, times. Pure.

The offsets are documented in docs/formats. Integers are in the byte order of the file's host; a block has 512, 1024 or
4096 bytes; the first 16 bytes of each are its header, and the rest of all blocks, concatenated, is the payload.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from struct import Struct
from typing import NamedTuple, TypedDict

from lowwater_extractor.sources.oracle.scn import Scn

#: the header of every block from 1 on
BLOCK_HEAD = 16
#: the first byte of every block from 1 on; a block that was never written has 0
BLOCK_SIGNATURE = 1
#: block size → the byte that stands for it in every block
SIZE_CLASS = {512: 0x22, 1024: 0x22, 4096: 0x82}
#: redo begins after the file header (block 0) and the log header (block 1)
FIRST_BLOCK = 2

MAGIC_LITTLE = b"\x7d\x7c\x7b\x7a"
MAGIC_BIG = MAGIC_LITTLE[::-1]

#: the number of blocks in use of a log that is still written
NAB_OPEN = 0xFFFF_FFFF
#: an SCN of all ones: none, or not yet
SCN_NONE = Scn((1 << 64) - 1)

#: object numbers have 32 bits
OBJECT_MAX = (1 << 32) - 1

#: a record's header; the first one of an LWN has 44 bytes more
RECORD_HEAD = 24
LWN_HEAD = 68
VLD_VECTORS = 0x01
VLD_LWN = 0x04
#: a vector's header, before its size list (from 12.1 on: older ones have no container)
VECTOR_HEAD = 32

#: 12.1, the first version whose vectors contain their container; then the versions in which the format changed
VERSION_MIN = 0x0C10_0000
VERSION_18 = 0x1200_0000
VERSION_19 = 0x1300_0000

#: typ of a vector whose tablespace is encrypted: its fields cannot be read
TYP_ENCRYPTED = 0x80

#: flags of the undo (ktub) in a 5.1
UNDO_HEAD, UNDO_TAIL, UNDO_BEGIN, UNDO_MIDDLE = 0x0001, 0x0002, 0x0008, 0x0100
UNDO_PARTS = UNDO_HEAD | UNDO_TAIL | UNDO_MIDDLE

#: flag of a 5.4: the transaction was rolled back
COMMIT_ROLLED_BACK = 0x04

#: flags of a session, in 5.19 and 5.20
SESSION_DDL, SESSION_SPACE, SESSION_RECURSIVE, SESSION_LOGMINER = 0x01, 0x02, 0x04, 0x08


class Place(NamedTuple):
    """A position in a thread: `record` bytes into the payload of the LWN at `offset` of log `sequence`.

    Offset 0 is the beginning of the log, whatever its block size.
    """

    sequence: int
    offset: int
    record: int = 0

    def __str__(self) -> str:
        return f"sequence {self.sequence} offset {self.offset} record {self.record}"


class Where(TypedDict):
    """The position fields of an error."""

    source: str
    thread: int
    position: str


class Format(NamedTuple):
    """The parameters of one log's format."""

    #: byte order in the notation of struct and numpy: `<` or `>`
    order: str = "<"
    block_size: int = 512
    version: int = 0x1706_0000

    @property
    def payload(self) -> int:
        """Bytes of a block after its header."""
        return self.block_size - BLOCK_HEAD


def opcode_text(opcode: int) -> str:
    return f"{opcode >> 8}.{opcode & 0xFF}"


def version_text(version: int) -> str:
    parts: tuple[int, ...]
    if version >= VERSION_18:
        parts = (version >> 24, version >> 16 & 0xFF, version >> 8 & 0xFF)
    else:
        parts = (version >> 24, version >> 20 & 0xF, version >> 16 & 0xF, version >> 8 & 0xFF)
    return ".".join(map(str, parts))


def pad4(size: int) -> int:
    return size + 3 & ~3


# --- SCN forms -----------------------------------------------------------------------------------------------------

_SCN = {order: Struct(f"{order}IHH") for order in "<>"}
_SCN_WRAP_FIRST = {order: Struct(f"{order}HI") for order in "<>"}


def unpack_scn(data: bytes, at: int, order: str = "<") -> Scn:
    """An 8-byte field, plain or flagged; `SCN_NONE` for none."""
    base, high, last = _SCN[order].unpack_from(data, at)
    if base == 0xFFFF_FFFF and high == 0xFFFF:
        return SCN_NONE
    if high & 0x8000:
        return Scn(base + (last << 32) + ((high & 0x7FFF) << 48))
    return Scn(base + (high << 32))


def pack_scn(scn: Scn, order: str = "<", *, flagged: bool = False) -> bytes:
    if scn == SCN_NONE:
        return b"\xff" * 8
    if flagged or scn >> 47:
        return _SCN[order].pack(scn & 0xFFFF_FFFF, 0x8000 | scn >> 48, scn >> 32 & 0xFFFF)
    return _SCN[order].pack(scn & 0xFFFF_FFFF, scn >> 32, 0)


def unpack_scn_wrap_first(data: bytes, at: int, order: str = "<") -> Scn:
    """The 6 bytes in an undo's transaction slot."""
    wrap, base = _SCN_WRAP_FIRST[order].unpack_from(data, at)
    return Scn(base + (wrap << 32))


# --- times: seconds by a calendar in which every month has 31 days, in the host's zone, which is not stored -------


def unpack_time(value: int) -> datetime:
    """The stored time, without a zone. Raises ValueError if it is not a date."""
    value, second = divmod(value, 60)
    value, minute = divmod(value, 60)
    value, hour = divmod(value, 24)
    value, day = divmod(value, 31)
    year, month = divmod(value, 12)
    return datetime(year + 1988, month + 1, day + 1, hour, minute, second)


def pack_time(when: datetime) -> int:
    days = ((when.year - 1988) * 12 + when.month - 1) * 31 + when.day - 1
    return ((days * 24 + when.hour) * 60 + when.minute) * 60 + when.second


def epoch_seconds(value: int, zone: tzinfo = UTC) -> int:
    """Epoch seconds of a stored time, in the zone of the database's host."""
    return int(unpack_time(value).replace(tzinfo=zone).timestamp())
