"""Vectors of one record, and the fields of those that carry transactions: what the scan is compared with."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from lowwater_extractor.sources.oracle.redo import opcodes
from lowwater_extractor.sources.oracle.redo.layout import (
    COMMIT_ROLLED_BACK,
    LWN_HEAD,
    RECORD_HEAD,
    VECTOR_HEAD,
    VERSION_19,
    VLD_LWN,
    VLD_VECTORS,
    Format,
    pad4,
    unpack_scn,
)

_U16 = {order: Struct(f"{order}H") for order in "<>"}
_U32 = {order: Struct(f"{order}I") for order in "<>"}
_XID = {order: Struct(f"{order}HHI") for order in "<>"}
#: size, VLD, SCN wrap, SCN base, sub-SCN, container UID
_RECORD = {order: Struct(f"{order}IBxHIHxxI") for order in "<>"}
#: layer, code, class, file, -, DBA, SCN, sequence, typ, object, container, -, flags, -, bytes of the size list
_VECTOR = {order: Struct(f"{order}BBHHHI8sBBHHHHHH") for order in "<>"}
#: object, data object, tablespace, previous DBA, operation (two bytes), slt, rci, flags
_KTUB = {order: Struct(f"{order}IIIIBBBBH") for order in "<>"}


class Record(NamedTuple):
    size: int
    vld: int
    scn: int
    sub_scn: int
    container_uid: int

    @property
    def head(self) -> int:
        """Bytes before the first vector."""
        return LWN_HEAD if self.vld & VLD_LWN else RECORD_HEAD


class Vector(NamedTuple):
    """A vector in `data`, which is kept whole: fields are slices of it."""

    data: bytes
    order: str
    at: int
    stop: int
    opcode: int
    class_: int
    file: int
    dba: int
    #: of the block before the change
    scn: int
    typ: int
    #: 16 bits of the data object id; 0xffff for none
    low_object: int
    container: int
    #: where each field begins, and its size
    starts: tuple[int, ...]
    sizes: tuple[int, ...]

    def field(self, number: int) -> bytes:
        """From 1, as the format counts them; empty if there is none."""
        if number > len(self.sizes):
            return b""
        start = self.starts[number - 1]
        return self.data[start : start + self.sizes[number - 1]]

    @property
    def segment(self) -> int:
        """The undo segment of an undo header (odd class) or block (even class)."""
        return (self.class_ - 15) // 2


class Xid(NamedTuple):
    segment: int
    slot: int
    sequence: int

    @property
    def number(self) -> int:
        """As events have it, without the container."""
        return self.segment << 48 | self.slot << 32 | self.sequence

    def __str__(self) -> str:
        """As LogMiner prints it."""
        return _XID["<"].pack(*self).hex().upper()


def unpack_record(data: bytes, at: int = 0, order: str = "<") -> Record:
    size, vld, wrap, base, sub, uid = _RECORD[order].unpack_from(data, at)
    return Record(size, vld, wrap << 32 | base, sub, uid)


def unpack_vectors(data: bytes, order: str = "<") -> Iterator[Vector]:
    """The vectors of one whole record. ValueError if they do not fill it."""
    record = unpack_record(data, 0, order)
    at = record.head if record.vld & VLD_VECTORS else record.size
    while at < record.size:
        vector = unpack_vector(data, at, order)
        at = vector.stop
        yield vector
    if at > pad4(record.size):
        raise ValueError(f"vectors of {at} bytes in a record of {record.size}")


def unpack_vector(data: bytes, at: int = 0, order: str = "<") -> Vector:
    """The vector at `at`, a record's or one that an event carries. ValueError if it is no vector."""
    if len(data) < at + VECTOR_HEAD + 4:
        raise ValueError(f"{len(data) - at} bytes are too few for a vector")
    layer, code, class_, file, _, dba, scn, _, typ, low, container, _, _, _, listed = _VECTOR[order].unpack_from(
        data, at
    )
    if listed < 2 or listed & 1 or len(data) < at + VECTOR_HEAD + listed:
        raise ValueError(f"a size list of {listed} bytes")
    sizes = Struct(f"{order}{(listed - 2) // 2}H").unpack_from(data, at + VECTOR_HEAD + 2)
    stop = at + VECTOR_HEAD + (listed + 2 & ~3)
    starts = []
    for size in sizes:
        starts.append(stop)
        stop += size + 3 & ~3
    if stop > len(data):
        raise ValueError(f"a vector of {stop - at} bytes where {len(data) - at} are left")
    opcode, before = layer << 8 | code, unpack_scn(scn, 0, order)
    return Vector(
        data, order, at, stop, opcode, class_, file, dba, before, typ, low, container, tuple(starts), tuple(sizes)
    )


# --- the fields of undo and transactions ---------------------------------------------------------------------------


class Undo(NamedTuple):
    """5.1: fields 1 and 2. Of a 5.6 or 5.11, which name no transaction, the xid has the sequence 0."""

    xid: Xid
    object: int
    data_object: int
    tablespace: int
    #: the operation that it undoes, as opcode
    operation: int
    flags: int


def unpack_undo(vector: Vector) -> Undo:
    if vector.opcode == opcodes.UNDO:
        xid, ktub = Xid(*_XID[vector.order].unpack_from(vector.field(1), 8)), vector.field(2)
    else:
        ktub = vector.field(1)
        xid = Xid(vector.segment, ktub[18], 0)
    number, data_object, tablespace, _, layer, code, _, _, flags = _KTUB[vector.order].unpack_from(ktub)
    return Undo(xid, number, data_object, tablespace, layer << 8 | code, flags)


def unpack_slot(vector: Vector) -> Xid:
    """The transaction of a 5.2, 5.4 or 5.12. A 5.2 with sequence 0 begins none."""
    slot, _, sequence = _XID[vector.order].unpack_from(vector.field(1))
    return Xid(vector.segment, slot, sequence)


class Commit(NamedTuple):
    xid: Xid
    flags: int
    #: epoch seconds; 0 if it does not say
    time: int

    @property
    def rolled_back(self) -> bool:
        return bool(self.flags & COMMIT_ROLLED_BACK)


def unpack_commit(vector: Vector) -> Commit:
    last = vector.field(len(vector.sizes)) if len(vector.sizes) > 1 else b""
    time = _U32[vector.order].unpack(last)[0] if len(last) == 4 else 0
    return Commit(unpack_slot(vector), vector.field(1)[16], time)


class Session(NamedTuple):
    """5.19 or 5.20."""

    serial: int
    session: int
    login: str
    transaction_name: str
    flags: int


def unpack_session(vector: Vector, form: Format) -> Session:
    login, name, flags = (3, 10, 11) if vector.opcode == opcodes.SESSION_START else (8, 2, 3)
    first = vector.field(1)
    serial = _U16[vector.order].unpack_from(first, 2)[0]
    if form.version >= VERSION_19:
        session = _U32[vector.order].unpack_from(first, 4)[0]
    else:
        session = _U16[vector.order].unpack_from(first, 0)[0]
    raw = vector.field(flags)
    bits = _U16[vector.order].unpack_from(raw)[0] if len(raw) >= 2 else 0
    return Session(serial, session, _text(vector.field(login)), _text(vector.field(name)), bits)


class Ddl(NamedTuple):
    """24.1. A long statement comes in `parts` parts."""

    xid: Xid
    type: int
    kind: int
    part: int
    parts: int
    object: int
    text: bytes


def unpack_ddl(vector: Vector) -> Ddl:
    first, number = vector.field(1), vector.field(12)
    u16 = _U16[vector.order].unpack_from
    return Ddl(
        xid=Xid(*_XID[vector.order].unpack_from(first, 4)),
        type=u16(first, 12)[0],
        kind=u16(first, 16)[0],
        part=u16(first, 18)[0],
        parts=u16(first, 20)[0],
        object=_U32[vector.order].unpack_from(number)[0] if len(number) >= 4 else 0,
        text=vector.field(8).rstrip(b"\0"),
    )


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode("utf-8", "replace")
