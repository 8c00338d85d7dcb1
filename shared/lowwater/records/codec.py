"""Encodes and decodes lowwater's own records: Commit, Mark and OrderKey by special code, others by type hints."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any, TypeVar

from lowwater.codec import generic
from lowwater.codec.values import text
from lowwater.codec.varint import long, read_long
from lowwater.errors import CodecError, SchemaError
from lowwater.records.ids import SchemaId
from lowwater.records.positions import ORDER_PAIR, Order
from lowwater.records.types import (
    Abandon,
    Aborted,
    Chunk,
    Commit,
    Control,
    Copied,
    Landed,
    Mark,
    MarkedThread,
    OrderKey,
    Position,
    Prepared,
    Progress,
    SchemaEntry,
    Skipped,
    SourceNote,
    Stale,
    Status,
    TableCopies,
)
from lowwater.records.wire import HEADER_SIZE, header, schema_id_of

RECORDS: tuple[type, ...] = (
    Commit, Abandon, Skipped, Copied, Stale, Chunk, TableCopies, SourceNote, Mark, Position, Progress, Control,
    SchemaEntry, OrderKey, Prepared, Landed, Aborted, Status,
)  # fmt: skip

R = TypeVar("R")

_TEXT_SCHEMA = '"string"'
KEY_NAME = "Key"


def record_schemas() -> dict[str, str]:
    """Name → Avro schema text of each of lowwater's records, including the text key of a transaction."""
    texts = {r.__name__: json.dumps(generic.schema_of(r), separators=(",", ":")) for r in RECORDS}
    texts[KEY_NAME] = _TEXT_SCHEMA
    return texts


def commit_after_source(
    thread: int, txid: str, order: Order, commit_ts_us: int, clock_us: int, changes: int, checksum: int
) -> bytes:
    """An encoded Commit without its first and last field, which are constant within a session."""
    ends = (long(commit_ts_us), long(clock_us), long(changes), long(checksum))
    return b"".join((long(thread), text(txid), ORDER_PAIR.pack(*order), *ends))


def encode_commit(c: Commit) -> bytes:
    ends = (c.commit_ts_us, c.clock_us, c.changes, c.checksum)
    return text(c.source) + commit_after_source(c.thread, c.txid, c.order, *ends) + long(c.generation)


def decode_commit(data: bytes, at: int = HEADER_SIZE) -> Commit:
    """Decodes a Commit. It is called for every transaction: non-negative numbers of one byte are read inline."""
    try:
        size, at = (data[at] >> 1, at + 1) if not data[at] & 129 else read_long(data, at)
        source = data[at : at + size].decode()
        at += size
        thread, at = (data[at] >> 1, at + 1) if not data[at] & 129 else read_long(data, at)
        size, at = (data[at] >> 1, at + 1) if not data[at] & 129 else read_long(data, at)
        txid = data[at : at + size].decode()
        at += size
        order = Order(*ORDER_PAIR.unpack_from(data, at))
        commit_ts_us, at = read_long(data, at + 16)
        clock_us, at = read_long(data, at)
        changes, at = (data[at] >> 1, at + 1) if not data[at] & 129 else read_long(data, at)
        checksum, at = read_long(data, at)
        generation, at = read_long(data, at)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise CodecError(f"not a Commit: {error}") from error
    return Commit(source, thread, txid, order, commit_ts_us, clock_us, changes, checksum, generation)


def encode_mark(m: Mark) -> bytes:
    parts = [long(m.epoch), long(m.clock_us)]
    if m.threads:
        parts.append(long(len(m.threads)))
        for t in m.threads:
            parts += (long(t.thread), t.order.pack(), text(t.state))
    parts += (b"\x00", long(m.generation))
    return b"".join(parts)


def decode_mark(data: bytes, at: int = HEADER_SIZE) -> Mark:
    epoch, at = read_long(data, at)
    clock_us, at = read_long(data, at)
    threads: list[MarkedThread] = []
    try:
        # an Avro array consists of blocks, the last one empty; we write one block, other writers may write several
        while (count := read_long(data, at))[0]:
            at = count[1] if count[0] > 0 else read_long(data, count[1])[1]
            for _ in range(abs(count[0])):
                thread, at = read_long(data, at)
                order = Order.unpack(data[at : at + 16])
                size, at = read_long(data, at + 16)
                threads.append(MarkedThread(thread, order, data[at : at + size].decode()))
                at += size
        generation, at = read_long(data, count[1])
    except (struct.error, UnicodeDecodeError) as error:
        raise CodecError(f"not a Mark: {error}") from error
    return Mark(epoch, clock_us, tuple(threads), generation)


def encode_order_key(k: OrderKey) -> bytes:
    return long(k.gsn) + long(k.seq)


_FAST: dict[type, Any] = {Commit: encode_commit, Mark: encode_mark, OrderKey: encode_order_key}


class RecordCodec:
    """Encodes and decodes records with the schema ids of this installation."""

    def __init__(self, ids: Mapping[str, SchemaId]) -> None:
        self.headers: dict[str, bytes] = {name: header(schema_id) for name, schema_id in ids.items()}
        self._by_header = {self.headers[r.__name__]: r for r in RECORDS}
        self._key_header = self.headers[KEY_NAME]

    def key(self, name: str) -> bytes:
        return self._key_header + text(name)

    def encode(self, record: Any) -> bytes:
        fast = _FAST.get(type(record))
        body: bytes = fast(record) if fast else generic.encode(record)
        return self.headers[type(record).__name__] + body

    def commit_head(self, source: str) -> bytes:
        """The first bytes of every Commit value of this source; `commit_after_source` and the generation follow."""
        return self.headers[Commit.__name__] + text(source)

    def record_type(self, value: bytes) -> type | None:
        """The class of the record; None for a change of a table."""
        return self._by_header.get(value[:HEADER_SIZE])

    def decode(self, value: bytes, want: type[R]) -> R:
        found = self.record_type(value)
        if found is not want:
            name = found.__name__ if found else f"schema {schema_id_of(value)}"
            raise SchemaError(
                f"expected {want.__name__}, found {name}",
                hint="was it written by another version of lowwater? upgrade the readers first",
            )
        decoded: R = generic.decode(value[HEADER_SIZE:], want)
        return decoded
