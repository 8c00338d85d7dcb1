"""A small walk over redo files that shares no code with the writer: for tests of what it writes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple


class Block1(NamedTuple):
    sequence: int
    used: int
    thread: int
    first_scn: bytes
    next_scn: bytes
    lwn_blocks_max: int


class Vector(NamedTuple):
    layer: int
    code: int
    kind: int
    head: bytes
    sizes: tuple[int, ...]
    fields: tuple[bytes, ...]
    #: of its bytes in the record
    start: int
    end: int


class Record(NamedTuple):
    #: block of its LWN, and where it begins
    lwn: int
    block: int
    offset: int
    data: bytes

    @property
    def flags(self) -> int:
        return self.data[4]

    def scn(self, order: str = "<") -> int:
        wrap, base = struct.unpack_from(order + "HI", self.data, 6)
        return int(wrap) << 32 | int(base)

    def vectors(self, order: str = "<") -> Iterator[Vector]:
        at = 68 if self.flags & 4 else 24
        while at < len(self.data):
            start = at
            (listed,) = struct.unpack_from(order + "H", self.data, at + 32)
            sizes = struct.unpack_from(f"{order}{(listed - 2) // 2}H", self.data, at + 34)
            at += 32 + (listed + 2 & ~3)
            fields = []
            for size in sizes:
                fields.append(self.data[at : at + size])
                at += size + 3 & ~3
            (kind,) = struct.unpack_from(order + "H", self.data, start + 2)
            head = self.data[start : start + 32]
            yield Vector(head[0], head[1], kind, head, sizes, tuple(fields), start, at)
        assert at == len(self.data), "the vectors do not fill their record"


def xor(block: bytes) -> int:
    found = 0
    for (word,) in struct.iter_unpack("<H", block):
        found ^= word
    return found


def block1(raw: bytes, size: int = 512, order: str = "<") -> Block1:
    (sequence,) = struct.unpack_from(order + "I", raw, size + 8)
    (used,) = struct.unpack_from(order + "I", raw, size + 156)
    (thread,) = struct.unpack_from(order + "H", raw, size + 176)
    (largest,) = struct.unpack_from(order + "I", raw, size + 268)
    return Block1(sequence, used, thread, raw[size + 180 : size + 188], raw[size + 192 : size + 200], largest)


def records(raw: bytes, used: int, size: int = 512, order: str = "<") -> Iterator[Record]:
    """The records of blocks 2 to `used`, each block checked on the way."""
    head = block1(raw, size, order)
    for number in range(1, used):
        block = raw[number * size : (number + 1) * size]
        assert (block[0], xor(block)) == (1, 0), f"block {number}"
        assert struct.unpack_from(order + "II", block, 4) == (number, head.sequence)
    lwn = 2
    while lwn < used:
        (count,) = struct.unpack_from(order + "I", raw, lwn * size + 16 + 28)
        assert 0 < count <= used - lwn
        yield from _lwn(raw, lwn, count, size, order)
        lwn += count


def _lwn(raw: bytes, lwn: int, count: int, size: int, order: str) -> Iterator[Record]:
    block, offset = lwn, 16
    while block < lwn + count:
        if size - offset < 24 or raw[block * size + offset : block * size + offset + 4] == bytes(4):
            block, offset = block + 1, 16
            continue
        at = (block, offset)
        (left,) = struct.unpack_from(order + "I", raw, block * size + offset)
        data = b""
        while left:
            taken = min(left, size - offset)
            data += raw[block * size + offset : block * size + offset + taken]
            left, offset = left - taken, offset + taken
            if left:
                block, offset = block + 1, 16
        yield Record(lwn, *at, data)
