"""Writes pgoutput's messages, protocol 2, as a server would: byte by byte, from the documentation of the protocol."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conformance.kit import SOURCE, Encoders, PastTransaction, read

from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources.postgres.assembler import Assembler
from lowwater_extractor.sources.postgres.relations import RelationMaker
from lowwater_extractor.sources.postgres.types import PgType
from lowwater_extractor.sources.postgres.wire.messages import EPOCH_2000_US
from lowwater_extractor.spill import SpillSpace

INT4, INT8, TEXT = 23, 20, 25
#: 2026-01-01, as PostgreSQL counts: from 2000 on
TS = 820_454_400_000_000
TS_US = TS + EPOCH_2000_US
#: a value that the server did not send, because an update left it alone
UNCHANGED = "\0unchanged"

Value = str | bytes | None


def xlog(body: bytes, lsn: int = 0x16B374D848) -> bytes:
    """Around every message of pgoutput: the replication protocol's own."""
    return b"w" + struct.pack(">QQq", lsn, lsn, TS) + body


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def begin(xid: int, final_lsn: int = 1000) -> bytes:
    return xlog(b"B" + struct.pack(">QqI", final_lsn, TS, xid))


def commit(end_lsn: int) -> bytes:
    return xlog(b"C" + struct.pack(">BQQq", 0, end_lsn - 8, end_lsn, TS))


def _sub(subxid: int | None) -> bytes:
    """Inside of a block every message has the id of its subtransaction."""
    return b"" if subxid is None else struct.pack(">I", subxid)


class PgColumn(NamedTuple):
    name: str
    oid: int
    is_key: bool = False
    typmod: int = -1


ACCOUNTS = (PgColumn("id", INT4, True), PgColumn("owner", TEXT), PgColumn("cents", INT8))


def relation(
    oid: int, name: str = "accounts", columns: Sequence[PgColumn] = ACCOUNTS, identity: str = "d",
    namespace: str = "public", subxid: int | None = None,
) -> bytes:  # fmt: skip
    body = b"R" + _sub(subxid) + struct.pack(">I", oid) + text(namespace) + text(name) + identity.encode()
    body += struct.pack(">H", len(columns))
    for column in columns:
        body += bytes([column.is_key]) + text(column.name) + struct.pack(">Ii", column.oid, column.typmod)
    return xlog(body)


def row(*values: Value) -> bytes:
    out = struct.pack(">H", len(values))
    for value in values:
        if value is None:
            out += b"n"
        elif value == UNCHANGED:
            out += b"u"
        else:
            data = value.encode() if isinstance(value, str) else value
            out += b"t" + struct.pack(">I", len(data)) + data
    return out


def insert(oid: int, *values: Value, subxid: int | None = None) -> bytes:
    return xlog(b"I" + _sub(subxid) + struct.pack(">I", oid) + b"N" + row(*values))


def update(
    oid: int, new: Sequence[Value], *, key: Sequence[Value] = (), old: Sequence[Value] = (), subxid: int | None = None
) -> bytes:
    before = b"K" + row(*key) if key else b"O" + row(*old) if old else b""
    return xlog(b"U" + _sub(subxid) + struct.pack(">I", oid) + before + b"N" + row(*new))


def delete(oid: int, *, key: Sequence[Value] = (), old: Sequence[Value] = (), subxid: int | None = None) -> bytes:
    before = b"K" + row(*key) if key else b"O" + row(*old)
    return xlog(b"D" + _sub(subxid) + struct.pack(">I", oid) + before)


def truncate(*oids: int, options: int = 0, subxid: int | None = None) -> bytes:
    return xlog(b"T" + _sub(subxid) + struct.pack(f">IB{len(oids)}I", len(oids), options, *oids))


def type_(oid: int, name: str, subxid: int | None = None) -> bytes:
    return xlog(b"Y" + _sub(subxid) + struct.pack(">I", oid) + text("public") + text(name))


def origin(name: str) -> bytes:
    return xlog(b"O" + struct.pack(">Q", 77) + text(name))


def message(prefix: str, content: bytes, subxid: int | None = None) -> bytes:
    body = struct.pack(">BQ", 0, 77) + text(prefix) + struct.pack(">I", len(content)) + content
    return xlog(b"M" + _sub(subxid) + body)


def stream_start(xid: int, *, first: bool) -> bytes:
    return xlog(b"S" + struct.pack(">IB", xid, first))


def stream_stop() -> bytes:
    return xlog(b"E")


def stream_commit(xid: int, end_lsn: int) -> bytes:
    return xlog(b"c" + struct.pack(">IBQQq", xid, 0, end_lsn - 8, end_lsn, TS))


def stream_abort(xid: int, subxid: int) -> bytes:
    return xlog(b"A" + struct.pack(">II", xid, subxid))


def block(xid: int, *messages: bytes, first: bool = False) -> list[bytes]:
    return [stream_start(xid, first=first), *messages, stream_stop()]


class DictCatalogue:
    """What the database would say of its types and keys."""

    def __init__(self) -> None:
        names = {INT4: "int4", INT8: "int8", TEXT: "text"}
        self.types = {oid: PgType(oid, name) for oid, name in names.items()}
        self.types[1007] = PgType(1007, "_int4", self.types[INT4])
        self.keys: dict[int, tuple[str, ...]] = {}
        self.dims: dict[int, dict[str, int]] = {}

    def type(self, oid: int) -> PgType:
        return self.types[oid]

    def is_visible(self, xid: int) -> bool:
        return True

    def dimensions(self, relation: int) -> dict[str, int]:
        return self.dims.get(relation, {})

    def primary_key(self, relation: int) -> tuple[str, ...]:
        return self.keys.get(relation, ())


class Fed:
    """An assembler that is fed, and what came out of it."""

    def __init__(self, directory: Path, bytes_max: int = 1 << 20) -> None:
        self.catalogue = DictCatalogue()
        self.encoders = Encoders()
        self.space = SpillSpace(directory)
        self.directory = directory
        self.ticks = 0
        maker = RelationMaker(SOURCE, self.catalogue, self.encoders, frozenset())
        self.assembler = Assembler(SOURCE, maker.relation, self.space, bytes_max, self._tick)

    def _tick(self) -> None:
        self.ticks += 1

    def feed(self, *messages: bytes | list[bytes]) -> Fed:
        for given in messages:
            for m in [given] if isinstance(given, bytes) else given:
                self.assembler.feed(m)
        return self

    def take(self) -> list[SourceTransaction]:
        found, self.assembler.committed = self.assembler.committed, []
        return found

    def read(self) -> list[PastTransaction]:
        return [read(transaction, self.encoders) for transaction in self.take()]

    def spilled(self) -> list[Path]:
        return list(self.directory.rglob("*.spill"))
