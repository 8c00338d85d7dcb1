"""The fields of a captured pair: the undo (5.1) and the row change (11.x) after it. Pure.

head     object u32, flags u16 (1: big endian), u16 position of the row change (words of 4 bytes; 0: there is none)
5.1      F1, F2 ktub, F3 KTB, F4 KDO, the row as it was, the supplemental group
11.x     F1 KTB, F2 KDO, the row as it is
"""

from __future__ import annotations

from struct import error, unpack_from

from lowwater.errors import LogCorruptError, LogUnknownError
from lowwater_extractor.sources.oracle.redo.codes import FLAG_BIG_ENDIAN, HEAD
from lowwater_extractor.sources.oracle.redo.layout import VECTOR_HEAD

#: flag of an undo that is one part of several: its last field continues in the next part
UNDO_SPLIT = 0x0004


def bad(what: str) -> LogCorruptError:
    return LogCorruptError(what, hint="report it with the log; nothing after it was captured")


def unknown(what: str) -> LogUnknownError:
    return LogUnknownError(
        what, hint="report it with the log and the database's version; nothing after it was captured"
    )


def order_of(data: bytes) -> str:
    return ">" if data[4] & FLAG_BIG_ENDIAN else "<"


def vectors(data: bytes) -> tuple[list[bytes], bytes, list[bytes]]:
    """(fields of the undo, opcode of the row change, its fields); the latter two are empty if there is none."""
    split = data[6] | data[7] << 8
    at = HEAD.size + 4 * split
    order = order_of(data)
    undo = fields(data, HEAD.size, order)
    if not split:
        return undo, b"", []
    return undo, data[at : at + 2], fields(data, at, order)


def fields(data: bytes, at: int, order: str) -> list[bytes]:
    try:
        (size,) = unpack_from(f"{order}H", data, at + VECTOR_HEAD)
        sizes = unpack_from(f"{order}{(size - 2) // 2}H", data, at + VECTOR_HEAD + 2)
    except error as cause:
        raise bad("a vector that ends before its size list does") from cause
    at += VECTOR_HEAD + (size + 2 & ~3)
    found = []
    for size in sizes:
        found.append(data[at : at + size])
        at += size + 3 & ~3
    if sizes and len(found[-1]) != sizes[-1]:
        raise bad("a vector that is shorter than its fields")
    return found


def undo_flags(undo: list[bytes], order: str) -> int:
    if len(undo) < 2 or len(undo[1]) < 24:
        raise bad("an undo without its second field")
    flags: int = unpack_from(f"{order}H", undo[1], 20)[0]
    return flags


def join_parts(head: list[bytes], behind: list[list[bytes]], order: str) -> list[bytes]:
    """Join an undo that did not fit into one block. The parts are logged last first; the row change is with the head.

    Each part has its own F1 and F2. A field may be split between parts.
    """
    joined = list(head)
    is_cut = bool(undo_flags(head, order) & UNDO_SPLIT)
    for part in reversed(behind):
        more = part[2:]
        if is_cut and more:
            joined[-1] += more[0]
            more = more[1:]
        joined += more
        is_cut = bool(undo_flags(part, order) & UNDO_SPLIT)
    return joined
