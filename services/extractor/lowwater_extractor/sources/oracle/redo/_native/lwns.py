# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Finds LWNs: each header has the number of its blocks, and the next LWN begins after them. Compiled with `lwns.pxd`.

`raw` is whole blocks that have been verified. Only the long record header at the start of a block is read.
"""

from __future__ import annotations

from typing import Final

Buffer = memoryview

#: constants of the format, the same as in `layout`
_BLOCK_HEAD: Final = 16
_LWN_HEAD: Final = 68
_VLD_LWN: Final = 4

#: columns: first block, the block after the last; lower and upper SCN; time; number in its group, size of the group
_START: Final = 0
_STOP: Final = 1
_SCN: Final = 2
_UPPER: Final = 3
_TIME: Final = 4
_NUMBER: Final = 5
_MEMBERS: Final = 6
COLUMNS: Final = 7


def _u16(raw: Buffer, at: int, is_big: bool) -> int:
    return raw[at] << 8 | raw[at + 1] if is_big else raw[at + 1] << 8 | raw[at]


def _u32(raw: Buffer, at: int, is_big: bool) -> int:
    first: int = _u16(raw, at, is_big)
    second: int = _u16(raw, at + 2, is_big)
    return first << 16 | second if is_big else second << 16 | first


def _scn(raw: Buffer, at: int, is_big: bool) -> int:
    """An SCN of six bytes, or of eight if the flag for that is set."""
    scn: int = _u32(raw, at, is_big)
    high: int = _u16(raw, at + 4, is_big)
    last: int = _u16(raw, at + 6, is_big)
    if high & 0x8000:
        return scn | last << 32 | (high & 0x7FFF) << 48
    return scn | high << 32


def count_lwns(raw: Buffer, block_size: int, blocks: int, is_big: bool) -> int:
    """The number of LWNs that begin in these blocks; the last one may be incomplete.

    -1 - n: an LWN should begin in block n, but does not. Its first record has the long header, and its length twice.
    """
    count: int = 0
    block: int = 0
    while block < blocks:
        at: int = block * block_size + _BLOCK_HEAD
        length: int = _u32(raw, at + 28, is_big)
        if (
            not raw[at + 4] & _VLD_LWN
            or length == 0
            or length != _u32(raw, at + 32, is_big)
            or _u32(raw, at, is_big) < _LWN_HEAD
        ):
            return -1 - block
        block += length
        count += 1
    return count


def list_lwns(raw: Buffer, block_size: int, count: int, is_big: bool, out: Buffer) -> None:
    """Write the columns of `count` LWNs to `out`, one column after the other. `count` is from `count_lwns`."""
    block: int = 0
    for lwn in range(count):
        at: int = block * block_size + _BLOCK_HEAD
        out[_START * count + lwn] = block
        block += _u32(raw, at + 28, is_big)
        out[_STOP * count + lwn] = block
        out[_SCN * count + lwn] = _scn(raw, at + 40, is_big)
        out[_UPPER * count + lwn] = _scn(raw, at + 56, is_big)
        out[_TIME * count + lwn] = _u32(raw, at + 64, is_big)
        out[_NUMBER * count + lwn] = _u16(raw, at + 24, is_big)
        out[_MEMBERS * count + lwn] = _u16(raw, at + 26, is_big)
