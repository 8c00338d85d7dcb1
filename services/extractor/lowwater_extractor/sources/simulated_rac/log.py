"""The outside of a redo log file: headers, blocks with their checksums, LWNs and records over blocks.

    block 0   the file: block size, number of blocks
    block 1   the log: database, thread, sequence, first and next SCN, how many blocks are in use
    block 2…  LWNs, each a run of whole blocks; its records follow one another over the blocks' payload

Every block from 1 on begins with 16 bytes: signature, number, sequence, where its first record begins, checksum.
A record begins with 24 bytes, the first one of an LWN with 68. What Oracle leaves in padding is old memory;
here it is zero.
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
#: "next SCN" of a log that is still written, and the "blocks in use" of one
SCN_NONE = (1 << 64) - 1
BLOCKS_OPEN = 0xFFFF_FFFF

#: record flags (VLD)
HAS_VECTORS, BLOCKS_WRITTEN, LWN_BEGINS = 0x01, 0x02, 0x04

_SIZE_CLASSES = {512: 0x22, 1024: 0x22, 4096: 0x82}
_MAGIC = 0x7A7B7C7D
#: of block 0: its own address and a constant of unknown meaning
_BLOCK0_ADDRESS, _BLOCK0_FLAG, _BLOCK0_KIND = 0xFFC0_0000, 0x0400, 4
_FILE_TYPE_LOG = 2
_FORMAT_ID, _ZERO_BLOCKS = 18, 8
_HEADER_FLAGS = 0x1080_0011
_LWN_CONSTANT = 0x0A
_FIRST_RECORD = 0x8000
_LARGE_SCN = 0x8000


@dataclass(frozen=True, slots=True)
class Form:
    """How the database writes its logs."""

    block_bytes: int = 512
    big_endian: bool = False
    #: compatibility: 23.6.0
    version: int = 0x1706_0000

    def __post_init__(self) -> None:
        if self.block_bytes not in _SIZE_CLASSES:
            raise ValueError(f"no log has blocks of {self.block_bytes} bytes")

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
    """8 bytes, as vectors and LWN headers have them; larger ones only fit the flagged form."""
    if scn == SCN_NONE:
        return b"\xff" * 8
    if scn >> 47:
        return flagged_scn(form, scn)
    return struct.pack(form.order + "IHH", scn & 0xFFFF_FFFF, scn >> 32, 0)


def flagged_scn(form: Form, scn: int) -> bytes:
    """8 bytes, as block 1 has them."""
    if scn == SCN_NONE:
        return b"\xff" * 8
    high = _LARGE_SCN | scn >> 48
    return struct.pack(form.order + "IHH", scn & 0xFFFF_FFFF, high, scn >> 32 & 0xFFFF)


def log_time(epoch: int) -> int:
    """Seconds since 1970 as a log has them: in months of 31 days from 1988 on, no zone (the host's is UTC)."""
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
    """The XOR of all 16-bit words of each row. With the checksum in its place it is 0."""
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
    """What block 1 says. Times are seconds since 1970."""

    thread: int
    sequence: int
    database: int
    name: str
    activation: int
    #: a time, and the SCN that goes with it
    resetlogs_id: int
    resetlogs_scn: int
    first_scn: int
    first_time: int
    #: of the online log, block 0 not counted
    blocks: int
    group: int
    enabled_scn: int
    enabled_time: int
    next_scn: int = SCN_NONE
    next_time: int = 0
    #: with block 0; `BLOCKS_OPEN` while the log is written
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
    """`blocks` without this one."""
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
    """What the header of an LWN's first record says beyond that of any other."""

    scn: int
    #: above the SCN of all its records, and not above that of anything behind it
    upper: int
    time: int


class LwnBuffer:
    """Records on their way into one LWN, laid out as they will lie in the blocks' payload."""

    __slots__ = ("_ends", "_form", "_head", "_room", "_size", "data", "starts")

    def __init__(self, form: Form) -> None:
        self._form = form
        self._room = form.payload_bytes
        self._size = struct.Struct(form.order + "I")
        self._head = struct.Struct(form.order + "HHIIB3x8s8x8sI")
        self.data = bytearray()
        #: where records begin
        self.starts: list[int] = []
        self._ends: list[int] = []

    def add(self, record: bytes) -> int:
        """Append one record with a 24-byte header; where it begins. The first one's header becomes a long one."""
        data = self.data
        if data:
            # a header is never cut: where it does not fit, the rest of the block stays unused
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
        """Per block: where its first record begins; or where the one ends that runs through it; else 0."""
        first = np.zeros(count, np.int64)
        for places, shift in ((self._ends, 1), (self.starts, 0)):
            # backwards, so that the lowest of a block is what stays; a start goes before an end
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
    """24 bytes; `size` is the whole record's."""
    return struct.pack(form.order + "IBBHIHHII", size, flags, 0, scn >> 32, scn & 0xFFFF_FFFF, 1, 0, container_uid, 0)
