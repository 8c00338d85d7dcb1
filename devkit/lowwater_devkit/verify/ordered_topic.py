"""Reads the ordered topic as a consumer: assembles transactions and checks every record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from confluent_kafka import Message

from lowwater.codec.varint import read_long
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end
from lowwater.records.codec import RecordCodec, decode_commit
from lowwater.records.types import Commit, Skipped
from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime.config import KafkaConfig


@dataclass(slots=True)
class Ordered:
    """One transaction of the ordered topic."""

    gsn: int
    #: the encoded values of the topic; decoded if read from a lake
    values: list[Any] = field(default_factory=list)
    commit: Commit | None = None
    skipped: Skipped | None = None
    #: description of the first problem; empty if there is none
    torn: str = ""


def read_ordered(kafka: KafkaConfig, codec: RecordCodec, group: str) -> list[Ordered]:
    messages, _ = read_to_end(kafka, topics.transactions(group))
    return list(assemble(messages, codec))


def assemble(messages: list[Message], codec: RecordCodec) -> Iterator[Ordered]:
    """Transactions in the order of the topic. Problems are recorded in `torn`."""
    current: Ordered | None = None
    for message in messages:
        key, value = message.key() or b"", message.value() or b""
        gsn, at = read_long(key, HEADER_SIZE)
        seq, _ = read_long(key, at)
        if current is None:
            current = Ordered(gsn)
        elif current.gsn != gsn:
            current.torn = current.torn or f"gsn {gsn} begins inside gsn {current.gsn}"
            yield current
            current = Ordered(gsn)
        if seq != len(current.values) + 1:
            current.torn = current.torn or f"seq {seq} where {len(current.values) + 1} belongs"
        kind = codec.record_type(value)
        if kind is Commit:
            current.commit = decode_commit(value)
            current.torn = current.torn or _broken(current.commit, current.values)
        elif kind is Skipped:
            current.skipped = codec.decode(value, Skipped)
        else:
            current.values.append(value)
            continue
        yield current
        current = None
    if current is not None:
        current.torn = current.torn or "it has no commit"
        yield current


def _broken(commit: Commit, values: list[bytes]) -> str:
    if commit.changes != len(values):
        return f"{len(values)} changes, but the commit counts {commit.changes}"
    return "" if sum(map(crc32, values)) == commit.checksum else "the checksum differs"
