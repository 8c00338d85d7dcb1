"""Verifies many blocks at once: signature, size class, number, sequence, checksum.

The XOR of all 16-bit words of a block, including the checksum, is 0. That does not depend on the byte order, so blocks
of either byte order are folded as 64-bit words.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo.layout import BLOCK_SIGNATURE, SIZE_CLASS, Format

Bytes = NDArray[np.uint8]


class Wrong(Enum):
    """Why a block is bad; the first reason that applies, in this order."""

    EMPTY = "it was never written"
    SIGNATURE = "it does not begin with a block's signature"
    SIZE_CLASS = "it is of another block size"
    OLDER = "it is of an older log"
    NEWER = "it is of a newer log"
    NUMBER = "it has another block's number"
    CHECKSUM = "its checksum is wrong"


class BadBlock(NamedTuple):
    #: number of good blocks before it
    good: int
    number: int
    wrong: Wrong
    what: str

    def __str__(self) -> str:
        return f"block {self.number}: {self.wrong.value} ({self.what})"


def fold(blocks: Bytes) -> NDArray[np.uint16]:
    """The XOR of each block's 16-bit words; `blocks` is one row per block. 0 if the checksum is right."""
    # along the long axis of the transposed words: numpy folds whole vectors instead of one row after the other
    words = np.bitwise_xor.reduce(blocks.view(np.uint64).T, axis=0)
    words ^= words >> np.uint64(32)
    words ^= words >> np.uint64(16)
    folded: NDArray[np.uint16] = words.astype(np.uint16)
    return folded


def rows(data: Any, block_size: int) -> Bytes:
    """The whole blocks in `data`, one row each, not copied."""
    raw = np.frombuffer(data, np.uint8)
    count = len(raw) // block_size
    return raw[: count * block_size].reshape(count, block_size)


def are_good(blocks: Bytes, numbers: NDArray[np.uint32], sequence: int, form: Format) -> NDArray[np.bool_]:
    """For each block, whether it is the block with this number of log `sequence` and its checksum is right."""
    heads = blocks[:, :16].view(f"{form.order}u4")
    good: NDArray[np.bool_] = heads[:, 0] == _signature(form)
    good &= heads[:, 1] == numbers
    good &= heads[:, 2] == sequence
    good &= fold(blocks) == 0
    return good


def find_bad(blocks: Bytes, number: int, sequence: int, form: Format) -> BadBlock | None:
    """The first block that is not block `number`, `number + 1`, … of log `sequence`; None if all are."""
    good = are_good(blocks, np.arange(number, number + len(blocks), dtype=np.uint32), sequence, form)
    if good.all():
        return None
    index = int(np.argmin(good))
    return _explain(blocks[index], index, number + index, sequence, form)


def _signature(form: Format) -> int:
    """The first four bytes of a block, as an integer in the file's byte order."""
    raw = bytes((BLOCK_SIGNATURE, SIZE_CLASS[form.block_size], 0, 0))
    return int.from_bytes(raw, "little" if form.order == "<" else "big")


def _explain(block: Bytes, index: int, number: int, sequence: int, form: Format) -> BadBlock:
    _, has_number, has_sequence, _ = (int(word) for word in block[:16].view(f"{form.order}u4"))
    first, size_class = int(block[0]), int(block[1])
    if first == 0 and size_class == 0:
        wrong, what = Wrong.EMPTY, "signature 0"
    elif first != BLOCK_SIGNATURE or block[2] or block[3]:
        wrong, what = Wrong.SIGNATURE, f"bytes {block[:4].tobytes().hex(' ')}"
    elif size_class != SIZE_CLASS[form.block_size]:
        wrong, what = Wrong.SIZE_CLASS, f"{size_class:#04x} instead of {SIZE_CLASS[form.block_size]:#04x}"
    elif has_sequence != sequence:
        wrong, what = Wrong.OLDER if has_sequence < sequence else Wrong.NEWER, f"{has_sequence}, not {sequence}"
    elif has_number != number:
        wrong, what = Wrong.NUMBER, f"{has_number}, not {number}"
    else:
        wrong, what = Wrong.CHECKSUM, f"its words fold to {int(fold(block[None, :])[0]):#06x}, not to 0"
    return BadBlock(index, number, wrong, what)
