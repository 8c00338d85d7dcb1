"""Redo logs for tests: the real ones, which lie beside the repository, and small ones made by hand.

The maker here is for boundaries and damage. It knows of the format only what a test has to place, byte by byte.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from struct import Struct, pack, pack_into
from typing import NamedTuple

import numpy as np
import pytest

from lowwater_extractor.sources.oracle.redo.blocks import fold, rows
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.layout import (
    BLOCK_HEAD,
    MAGIC_BIG,
    MAGIC_LITTLE,
    NAB_OPEN,
    SCN_NONE,
    SIZE_CLASS,
    Format,
    pack_scn,
    pad4,
)
from lowwater_extractor.sources.oracle.redo.scan import Damage, find_lwns
from lowwater_extractor.sources.oracle.scn import Scn

_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "oracle-free-23"

#: of the real logs, and of made ones unless told otherwise
IDENTITY = Identity(1497016494, 1224959854)
CONTAINER = 3
OBJECT = 72726
#: as the real logs are
LITTLE = Format()
#: 2026-03-07 01:44:40
TIME = 0x49261288


class RealLogs(NamedTuple):
    first: Path
    second: Path

    @property
    def directory(self) -> Path:
        return self.first.parent


def real_logs() -> RealLogs:
    """The two archived logs of a real database; skips the test where they are not there."""
    directory = Path(os.environ.get("LOWWATER_ORACLE_LOGS", _BESIDE))
    logs = RealLogs(directory / "arch1_15_1224959854.dbf", directory / "arch1_16_1224959854.dbf")
    if not all(path.is_file() for path in logs):
        pytest.skip(f"the real redo logs are not in {directory} (LOWWATER_ORACLE_LOGS names another place)")
    return logs


# --- vectors and records -------------------------------------------------------------------------------------------


def vector(
    opcode: int,
    *fields: bytes,
    form: Format = LITTLE,
    class_: int = 1,
    container: int = CONTAINER,
    low_object: int = 0xFFFF,
    typ: int = 0,
    dba: int = 0x0600000E,
) -> bytes:
    order = form.order
    head = pack(f"{order}BBHHHI8sBB", opcode >> 8, opcode & 0xFF, class_, 24, 0, dba, pack_scn(Scn(1), order), 1, typ)
    head += pack(f"{order}HHHHH", low_object, container, 0, 0, 0)
    sizes = pack(f"{order}{len(fields) + 1}H", 2 * len(fields) + 2, *map(len, fields))
    return head + _padded(sizes) + b"".join(map(_padded, fields))


def _padded(data: bytes) -> bytes:
    # what stands in the gaps is old memory: never nothing
    return data.ljust(pad4(len(data)), b"\xee")


def undo(
    xid: tuple[int, int, int],
    *fields: bytes,
    number: int = OBJECT,
    operation: int = 0x0B01,
    flags: int = 0,
    form: Format = LITTLE,
    container: int = CONTAINER,
    typ: int = 0,
) -> bytes:
    """A 5.1."""
    order = form.order
    ktudb = pack(f"{order}HHHHHHIHBB", 0, 0, 0, 0, *xid, 0, 0, 0)
    class_ = 16 + 2 * xid[0]
    ktub = _ktub(xid[1], number, operation, flags, order)
    return vector(0x0501, ktudb, ktub, *fields, form=form, class_=class_, container=container, typ=typ)


def row_pair(
    xid: tuple[int, int, int], *, opcode: int = 0x0B02, number: int = OBJECT, form: Format = LITTLE
) -> tuple[bytes, bytes]:
    """A 5.1 and the 11.x that it undoes, with no row worth the name."""
    row = vector(opcode, bytes(24), bytes(48), b"\xc1\x02", form=form, low_object=number & 0xFFFF)
    return undo(xid, bytes(8), bytes(20), number=number, form=form), row


def undone(
    opcode: int,
    xid: tuple[int, int, int],
    *,
    number: int = OBJECT,
    operation: int = 0x0B01,
    flags: int = 0,
    form: Format = LITTLE,
) -> bytes:
    """A 5.6 or 5.11."""
    ktub = _ktub(xid[1], number, operation, flags, form.order)
    return vector(opcode, ktub, bytes(8), form=form, class_=16 + 2 * xid[0])


def _ktub(slot: int, number: int, operation: int, flags: int, order: str) -> bytes:
    parts = (number, number, 6, 0, operation >> 8, operation & 0xFF, slot, 0, flags, 0)
    return pack(f"{order}IIIIBBBBHH", *parts)


def begin(xid: tuple[int, int, int], *, form: Format = LITTLE, container: int = CONTAINER) -> bytes:
    head = pack(f"{form.order}HHI24x", xid[1], 0, xid[2])
    return vector(0x0502, head, bytes(4), form=form, class_=15 + 2 * xid[0], container=container)


def commit(
    xid: tuple[int, int, int],
    *,
    flags: int = 2,
    time: int | None = 1772847880,
    form: Format = LITTLE,
    container: int = CONTAINER,
) -> bytes:
    head = pack(f"{form.order}HHIIIB3x", xid[1], 0, xid[2], 0, 9, flags)
    fields = (head, bytes(16)) if time is None else (head, bytes(16), pack(f"{form.order}I", time))
    return vector(0x0504, *fields, form=form, class_=15 + 2 * xid[0], container=container)


class MadeRecord(NamedTuple):
    scn: int
    vectors: tuple[bytes, ...]
    sub_scn: int = 1
    vld: int = 1

    def size(self, head: int = 24) -> int:
        return head + sum(map(len, self.vectors))


def record(scn: int, *vectors: bytes, sub_scn: int = 1) -> MadeRecord:
    return MadeRecord(scn, vectors, sub_scn)


def filler(scn: int, size: int, form: Format = LITTLE) -> MadeRecord:
    """A record of `size` bytes that means nothing: one 4.1."""
    fields = 1 + size // 40_000
    left = size - 24 - 32 - pad4(2 * fields + 2)
    sizes = [40_000] * (fields - 1)
    return record(scn, vector(0x0401, *map(bytes, [*sizes, left - sum(sizes)]), form=form))


class MadeLwn(NamedTuple):
    scn: int
    records: Sequence[MadeRecord]
    number: int = 0
    members: int = 1
    upper: int | None = None
    time: int = TIME


# --- files ---------------------------------------------------------------------------------------------------------


class MadeLog(NamedTuple):
    form: Format = LITTLE
    thread: int = 1
    sequence: int = 15
    identity: Identity = IDENTITY
    first_scn: int = 1000
    #: None: the log is still written
    next_scn: int | None = 9000

    def pack(self, lwns: Sequence[MadeLwn], blocks_after: int = 0) -> bytes:
        """The file: headers, the LWNs, and blocks behind them that were never written."""
        redo = b"".join(self.lwn_blocks(lwns))
        used = 2 + len(redo) // self.form.block_size
        empty = bytes(blocks_after * self.form.block_size)
        return self.headers(used, used + blocks_after) + seal(redo, 2, self.sequence, self.form) + empty

    def headers(self, used: int, blocks: int) -> bytes:
        form, order = self.form, self.form.order
        zero = bytearray(form.block_size)
        pack_into(f"{order}BB", zero, 0, 0, SIZE_CLASS[form.block_size])
        pack_into(f"{order}II", zero, 20, form.block_size, blocks - 1)
        zero[28:32] = MAGIC_LITTLE if order == "<" else MAGIC_BIG
        zero[16:18] = fold(rows(bytes(zero), form.block_size)).tobytes()
        one = bytearray(form.block_size)
        parts = (form.version, self.identity.database, b"FREE", 1212, blocks, form.block_size, 2, 2, 1496992686)
        pack_into(f"{order}II8sIIIHHI", one, 20, *parts)
        is_open = self.next_scn is None
        pack_into(f"{order}I", one, 156, NAB_OPEN if is_open else used)
        pack_into(f"{order}I8s", one, 160, self.identity.resetlogs, pack_scn(Scn(7), order, flagged=True))
        pack_into(f"{order}H", one, 176, self.thread)
        one[180:188] = pack_scn(Scn(self.first_scn), order, flagged=True)
        one[192:200] = pack_scn(Scn(SCN_NONE if self.next_scn is None else self.next_scn), order, flagged=True)
        one[272:280] = b"\xff" * 8
        return bytes(zero) + seal(bytes(one), 1, self.sequence, form)

    def lwn_blocks(self, lwns: Sequence[MadeLwn]) -> list[bytes]:
        """The blocks of each LWN, not sealed."""
        return [_lwn_blocks(lwn, self.form) for lwn in lwns]


def seal(blocks: bytes, number: int, sequence: int, form: Format) -> bytes:
    """Signature, number, sequence and checksum of blocks that have the rest."""
    sealed = np.frombuffer(blocks, np.uint8).reshape(-1, form.block_size).copy()
    sealed[:, 0], sealed[:, 1] = 1, SIZE_CLASS[form.block_size]
    heads = sealed[:, :16].view(f"{form.order}u4")
    heads[:, 1] = np.arange(number, number + len(sealed))
    heads[:, 2] = sequence
    sealed[:, 14:16] = 0
    # in the host's order as it is folded, so in the file's
    sealed[:, 14:16] = fold(sealed).view(np.uint8).reshape(-1, 2)
    return sealed.tobytes()


_LWN = {order: Struct(f"{order}HHIIB3x8s8s8sI") for order in "<>"}


def _lwn_blocks(lwn: MadeLwn, form: Format) -> bytes:
    payload, first = _lay_out(lwn, form)
    step = form.payload
    count = len(payload) // step
    order = form.order
    upper = lwn.upper if lwn.upper is not None else max((one.scn for one in lwn.records), default=lwn.scn) + 1
    scns = (pack_scn(Scn(lwn.scn), order), b"\xee" * 8, pack_scn(Scn(upper), order))
    payload[24:68] = _LWN[order].pack(lwn.number, lwn.members, count, count, 10, *scns, lwn.time)
    blocks = bytearray()
    for block in range(count):
        head = pack(f"{order}12xHH", 0x8000 | first[block], 0)
        blocks += head + payload[block * step : (block + 1) * step]
    return bytes(blocks)


def _lay_out(lwn: MadeLwn, form: Format) -> tuple[bytearray, list[int]]:
    """The payload of whole blocks, and where the first record of each block starts, as its header says it."""
    step = form.payload
    payload, first = bytearray(), [BLOCK_HEAD]
    records = list(lwn.records) or [MadeRecord(lwn.scn, (vector(0x1701, bytes(8), form=form),), vld=2)]
    for index, one in enumerate(records):
        room = -len(payload) % step
        if 0 < room < 24:
            payload += b"\xee" * room
            first.append(BLOCK_HEAD)
        head = _record_head(one, index == 0, form)
        payload += head + b"".join(one.vectors)
        while len(first) * step < len(payload):
            # this record's end, or (0) the block lies wholly inside it
            left = len(payload) - len(first) * step
            first.append(BLOCK_HEAD + left if left < step else 0)
        if len(payload) % step == 0:
            first.append(BLOCK_HEAD)
    payload += bytes(-len(payload) % step)
    return payload, first[: len(payload) // step]


def _record_head(one: MadeRecord, is_first: bool, form: Format) -> bytes:
    size = one.size(68 if is_first else 24)
    vld = one.vld | 4 if is_first else one.vld
    parts = (size, vld, 0xEE, one.scn >> 32, one.scn & 0xFFFF_FFFF, one.sub_scn, 0xEEEE, 1385559638, 0xEEEEEEEE)
    return pack(f"{form.order}IBBHIHHII", *parts).ljust(68 if is_first else 24, b"\xee")


def repeat_log(data: bytes, times: int, sequence: int = 15, blocks_min: int = 1) -> bytes:
    """The LWNs of a log that have at least so many blocks, again and again in one log: for measuring.

    SCNs and transactions repeat as they are.
    """
    size = LITTLE.block_size
    blocks = rows(data, size)[2:]
    found = find_lwns(blocks, LITTLE)
    assert not isinstance(found, Damage)
    chosen = [
        blocks[start:stop].tobytes()
        for start, stop in zip(found[0].start.tolist(), found[0].stop.tolist(), strict=True)
        if stop - start >= blocks_min
    ]
    redo = b"".join(chosen) * times
    used = 2 + len(redo) // size
    return MadeLog(sequence=sequence).headers(used, used) + seal(redo, 2, sequence, LITTLE)
