"""Writes the structure of a redo log file: headers, blocks with checksums, LWNs, and records across blocks.

    block 0   the file: block size, number of blocks
    block 1   the log: database, thread, sequence, first and next SCN, number of blocks in use
    block 2…  LWNs, each in whole blocks; its records are consecutive in the blocks' payload

Every block from 1 on begins with a header of 16 bytes: signature, number, sequence, offset of its first record,
checksum. A record begins with a header of 24 bytes, the first one of an LWN with 68. Padding is zero here; in Oracle's
logs it is uninitialized memory.
"""

from __future__ import annotations

import calendar
import struct
import time
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK_HEAD_BYTES = 16
RECORD_HEAD_BYTES = 24
LWN_HEAD_BYTES = 68
#: blocks before the first LWN
FIRST_BLOCK = 2
#: next SCN and number of blocks in use of a log that is still written
SCN_NONE = (1 << 64) - 1
BLOCKS_OPEN = 0xFFFF_FFFF

#: record flags (VLD)
HAS_VECTORS, BLOCKS_WRITTEN, LWN_BEGINS = 0x01, 0x02, 0x04

_SIZE_CLASSES = {512: 0x22, 1024: 0x22, 4096: 0x82}
_MAGIC = 0x7A7B7C7D
#: of block 0: its address, and constants of unknown meaning
_BLOCK0_ADDRESS, _BLOCK0_FLAG, _BLOCK0_KIND = 0xFFC0_0000, 0x0400, 4
_FILE_TYPE_LOG = 2
_FORMAT_ID, _ZERO_BLOCKS = 18, 8
_HEADER_FLAGS = 0x1080_0011
_LWN_CONSTANT = 0x0A
_FIRST_RECORD = 0x8000
_LARGE_SCN = 0x8000


@dataclass(frozen=True, slots=True)
class Form:
    """The format of a database's logs."""

    block_bytes: int = 512
    big_endian: bool = False
    #: compatibility: 23.6.0
    version: int = 0x1706_0000

    def __post_init__(self) -> None:
        if self.block_bytes not in _SIZE_CLASSES:
            raise ValueError(f"a block size of {self.block_bytes} bytes is not supported")

    @property
    def order(self) -> str:
        return ">" if self.big_endian else "<"

    @property
    def payload_bytes(self) -> int:
        return self.block_bytes - BLOCK_HEAD_BYTES

    @property
    def size_class(self) -> int:
        return _SIZE_CLASSES[self.block_bytes]

    def blocks_of(self, payload: int) -> int:
        return -(-payload // self.payload_bytes)


# --- SCNs and times


def plain_scn(form: Form, scn: int) -> bytes:
    """The 8 bytes in vectors and LWN headers; large SCNs need the flagged form."""
    if scn == SCN_NONE:
        return b"\xff" * 8
    if scn >> 47:
        return flagged_scn(form, scn)
    return struct.pack(form.order + "IHH", scn & 0xFFFF_FFFF, scn >> 32, 0)


def flagged_scn(form: Form, scn: int) -> bytes:
    """The 8 bytes in block 1."""
    if scn == SCN_NONE:
        return b"\xff" * 8
    high = _LARGE_SCN | scn >> 48
    return struct.pack(form.order + "IHH", scn & 0xFFFF_FFFF, high, scn >> 32 & 0xFFFF)


def log_time(epoch: int) -> int:
    """The time in a log for seconds since 1970: months of 31 days from 1988 on, no zone (the host's is UTC)."""
    at = time.gmtime(epoch)
    days = ((at.tm_year - 1988) * 12 + at.tm_mon - 1) * 31 + at.tm_mday - 1
    return ((days * 24 + at.tm_hour) * 60 + at.tm_min) * 60 + at.tm_sec


def epoch_of(value: int) -> int:
    value, second = divmod(value, 60)
    value, minute = divmod(value, 60)
    value, hour = divmod(value, 24)
    value, day = divmod(value, 31)
    year, month = divmod(value, 12)
    return calendar.timegm((year + 1988, month + 1, day + 1, hour, minute, second))


# --- checksums


def block_checksums(blocks: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint16]:
    """The XOR of all 16-bit words of each row; 0 if the row contains its checksum."""
    folded = np.bitwise_xor.reduce(blocks.view(np.uint64), axis=1)
    folded ^= folded >> np.uint64(32)
    words: npt.NDArray[np.uint16] = (folded ^ folded >> np.uint64(16)).astype(np.uint16)
    return words


def _with_checksum(block: bytearray, at: int) -> bytes:
    block[at : at + 2] = b"\0\0"
    words = block_checksums(np.frombuffer(block, np.uint8).reshape(1, -1))
    block[at : at + 2] = words.tobytes()
    return bytes(block)


# --- block 0 and block 1


class LogHeader(NamedTuple):
    """The content of block 1. Times are seconds since 1970."""

    thread: int
    sequence: int
    database: int
    name: str
    activation: int
    #: the time of the resetlogs, and its SCN
    resetlogs_id: int
    resetlogs_scn: int
    first_scn: int
    first_time: int
    #: blocks of the online log without block 0
    blocks: int
    group: int
    enabled_scn: int
    enabled_time: int
    next_scn: int = SCN_NONE
    next_time: int = 0
    #: blocks in use with block 0; `BLOCKS_OPEN` while the log is written
    used: int = BLOCKS_OPEN
    control_sequence: int = 0
    header_writes: int = 2
    thread_closed_scn: int = 0
    thread_closed_time: int = 0
    end_of_thread: bool = False
    lwn_blocks_max: int = 0
    previous_resetlogs_scn: int = 1
    previous_resetlogs_id: int = 0
    flags: int = _HEADER_FLAGS

    @property
    def text(self) -> str:
        return f"T {self.thread:04d}, S {self.sequence:010d}, SCN 0x{self.first_scn:016x}-0x{self.next_scn:016x}"


def pack_block0(form: Form, blocks: int) -> bytes:
    """`blocks`: number of blocks without this one."""
    block = bytearray(form.block_bytes)
    block[1] = form.size_class
    struct.pack_into(form.order + "I", block, 4, _BLOCK0_ADDRESS)
    struct.pack_into(form.order + "H", block, 14, _BLOCK0_FLAG)
    struct.pack_into(form.order + "4I", block, 20, form.block_bytes, blocks, _MAGIC, _BLOCK0_KIND)
    return _with_checksum(block, 16)


def pack_block1(form: Form, head: LogHeader) -> bytes:
    block = bytearray(form.block_bytes)

    def put(at: int, codes: str, *values: int | bytes) -> None:
        struct.pack_into(form.order + codes, block, at, *values)

    put(0, "BBHII", 1, form.size_class, 0, 1, head.sequence)
    put(12, "H", _FIRST_RECORD)
    put(20, "II8s", form.version, head.database, head.name.encode())
    put(36, "IIIHHI", head.control_sequence, head.blocks, form.block_bytes, head.group, _FILE_TYPE_LOG, head.activation)
    put(92, "64s", head.text.encode())
    put(
        156,
        "II8sIH",
        head.used,
        head.resetlogs_id,
        flagged_scn(form, head.resetlogs_scn),
        head.header_writes,
        head.thread,
    )
    put(180, "8sI", flagged_scn(form, head.first_scn), _time(head.first_time))
    put(192, "8sI", flagged_scn(form, head.next_scn), _time(head.next_time))
    put(204, "BBBB", head.end_of_thread, 0, _ZERO_BLOCKS, _FORMAT_ID)
    put(208, "8sI", flagged_scn(form, head.enabled_scn), _time(head.enabled_time))
    put(220, "8sI", flagged_scn(form, head.thread_closed_scn), _time(head.thread_closed_time))
    put(236, "I", head.flags)
    put(252, "I", head.header_writes)
    put(268, "I8s", head.lwn_blocks_max, b"\xff" * 8)
    put(284, "II", head.previous_resetlogs_scn, 0)
    put(292, "I", head.previous_resetlogs_id)
    return _with_checksum(block, 14)


def _time(epoch: int) -> int:
    return log_time(epoch) if epoch else 0


# --- LWNs


class LwnTail(NamedTuple):
    """The additional fields in the header of an LWN's first record."""

    scn: int
    #: above the SCNs of all its records, and not above the SCN of any later record
    upper: int
    time: int


class LwnBuffer:
    """Collects the records of one LWN, in the layout of the blocks' payload."""

    __slots__ = ("_ends", "_form", "_head", "_room", "_size", "data", "starts")

    def __init__(self, form: Form) -> None:
        self._form = form
        self._room = form.payload_bytes
        self._size = struct.Struct(form.order + "I")
        self._head = struct.Struct(form.order + "HHIIB3x8s8x8sI")
        self.data = bytearray()
        #: positions of records
        self.starts: list[int] = []
        self._ends: list[int] = []

    def add(self, record: bytes) -> int:
        """Append one record with a 24-byte header; return its position. The first one gets a long header."""
        data = self.data
        if data:
            # a header is never split: if it does not fit, the rest of the block is unused
            left = -len(data) % self._room
            if left < RECORD_HEAD_BYTES:
                data += bytes(left)
            at = len(data)
            data += record
        else:
            at = 0
            data += self._size.pack(len(record) + LWN_HEAD_BYTES - RECORD_HEAD_BYTES)
            data += bytes([record[4] | LWN_BEGINS]) + record[5:RECORD_HEAD_BYTES]
            data += bytes(LWN_HEAD_BYTES - RECORD_HEAD_BYTES) + record[RECORD_HEAD_BYTES:]
        self.starts.append(at)
        self._ends.append(len(data))
        return at

    @property
    def blocks(self) -> int:
        return self._form.blocks_of(len(self.data))

    def packed(self, sequence: int, first_block: int, tail: LwnTail) -> bytes:
        """The LWN's blocks, at `first_block` of the log."""
        form, room, count = self._form, self._room, self.blocks
        scns = plain_scn(form, tail.scn), plain_scn(form, tail.upper)
        self._head.pack_into(
            self.data, RECORD_HEAD_BYTES, 0, 1, count, count, _LWN_CONSTANT, *scns, log_time(tail.time)
        )
        blocks = np.zeros((count, form.block_bytes), np.uint8)
        payload = np.frombuffer(bytes(self.data) + bytes(-len(self.data) % room), np.uint8)
        blocks[:, BLOCK_HEAD_BYTES:] = payload.reshape(count, room)
        heads = blocks[:, :BLOCK_HEAD_BYTES].view(_head_type(form))[:, 0]
        heads["signature"], heads["size_class"] = 1, form.size_class
        heads["number"] = np.arange(first_block, first_block + count)
        heads["sequence"] = sequence
        heads["first"] = self._first_records(count) | _FIRST_RECORD
        blocks.view(np.uint16)[:, 7] = block_checksums(blocks)
        return blocks.tobytes()

    def _first_records(self, count: int) -> npt.NDArray[np.int64]:
        """By block: offset of its first record; else the end of the record that spans it; else 0."""
        first = np.zeros(count, np.int64)
        for places, shift in ((self._ends, 1), (self.starts, 0)):
            # backwards, so that the lowest of a block is assigned last; starts overwrite ends
            at = np.array(places[::-1])
            block = (at - shift) // self._room
            first[block] = at - block * self._room + BLOCK_HEAD_BYTES
        return first


def _head_type(form: Form) -> np.dtype[np.void]:
    order = form.order
    return np.dtype(
        [
            ("signature", "u1"),
            ("size_class", "u1"),
            ("zero", "u2"),
            ("number", order + "u4"),
            ("sequence", order + "u4"),
            ("first", order + "u2"),
            ("checksum", "u2"),
        ]
    )


def record_head(form: Form, size: int, flags: int, scn: int, container_uid: int) -> bytes:
    """A record header of 24 bytes; `size` is that of the whole record."""
    return struct.pack(form.order + "IBBHIHHII", size, flags, 0, scn >> 32, scn & 0xFFFF_FFFF, 1, 0, container_uid, 0)
