"""A changes topic in memory: what a consumer that reads committed sees."""

from __future__ import annotations

from zlib import crc32

from lowwater.codec.varint import long
from lowwater.records.codec import RecordCodec, record_schemas
from lowwater.records.ids import SchemaId
from lowwater.records.types import Abandon, Commit, Copied, Mark
from lowwater.records.wire import header
from lowwater_merger.core.merger import RecordKind

CODEC = RecordCodec({name: SchemaId(number + 1) for number, name in enumerate(sorted(record_schemas()))})
CHANGE_HEADER = header(SchemaId(77))
_KINDS: dict[type | None, RecordKind] = {
    None: RecordKind.CHANGE,
    Copied: RecordKind.CHANGE,
    Commit: RecordKind.COMMIT,
    Abandon: RecordKind.ABANDON,
    Mark: RecordKind.MARK,
}


def classify(value: bytes) -> RecordKind:
    return _KINDS.get(CODEC.record_type(value), RecordKind.FOREIGN)


def change_value(seq: int, payload: str) -> bytes:
    """A change, as far as the merger looks at one: its schema id and its `seq`."""
    return CHANGE_HEADER + long(seq) + payload.encode()


def checksum(values: list[bytes]) -> int:
    return sum(map(crc32, values))


class Record:
    """One record, in the shape of a consumed Kafka message."""

    __slots__ = ("_key", "_offset", "_partition", "_topic", "_value", "content")

    def __init__(
        self, topic: str, partition: int, offset: int, key: bytes, value: bytes, content: Commit | Mark | None
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        #: what it says, for those who look at whole topics
        self.content = content

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset


class Topic:
    """Partitions whose offsets have holes, as transaction markers leave them."""

    def __init__(self, source: str, partitions: int) -> None:
        self.source = source
        self.name = f"lowwater.{source}.changes"
        self.partitions: list[list[Record]] = [[] for _ in range(partitions)]
        self._next = [0] * partitions

    def partition_of(self, key: bytes) -> int:
        return crc32(key) % len(self.partitions)

    def append(self, partition: int, key: bytes, value: bytes, content: Commit | Mark | None = None) -> int:
        offset = self._next[partition]
        self.partitions[partition].append(Record(self.name, partition, offset, key, value, content))
        self._next[partition] = offset + 1
        return offset

    def end_transaction(self) -> None:
        self._next = [offset + 1 for offset in self._next]

    def end(self, partition: int) -> int:
        return self._next[partition]
