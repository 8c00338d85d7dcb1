"""Buffers records of the changes topic: one slab per partition, passed to the Kafka client when it is full.

The records of a partition keep their order: a record larger than a slab is sent alone, after the buffered ones.
"""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from lowwater.codec.varint import long
from lowwater.errors import RowTooLargeError
from lowwater.kafka import topics
from lowwater_extractor._native.slab import Slab
from lowwater_extractor.api import ChangeCursor, Frame
from lowwater_extractor.publish.slab_producer import SlabProducer


class Outbox:
    def __init__(self, producer: SlabProducer, source: str, row_key: Callable[[bytes], str]) -> None:
        self._producer = producer
        self._source = source
        self._topic = topics.changes(source)
        self._row_key = row_key
        self._slabs: dict[int, Slab] = {}
        #: bytes and number of all records that were added
        self.bytes_total = 0
        self.records_total = 0

    def put(self, value: bytes, key: bytes, partition: int) -> None:
        """Add a record that is not a change."""
        if self._slab(partition).add(key, value):
            self.bytes_total += len(value)
        else:
            self._hand_over(partition)
            self._put_alone(value, key, partition)
        self.records_total += 1

    def put_changes(self, changes: ChangeCursor, seq: int, key: bytes, partition: int) -> tuple[int, int]:
        """Add at least one change, the first with number `seq`; returns their number and checksum."""
        slab = self._slab(partition)
        while True:
            size, summed = slab.size, slab.checksum
            taken = changes.add_to(slab, key, seq)
            checksum = slab.checksum - summed
            self.bytes_total += slab.size - size
            if taken or not slab.count:
                break
            self._hand_over(partition)
        if not taken:
            taken, checksum = 1, self._put_large(changes.take(), seq, key, partition)
        self.records_total += taken
        return taken, checksum

    def hand_all_over(self) -> None:
        for partition, slab in self._slabs.items():
            if slab.count:
                self._hand_over(partition)

    def _hand_over(self, partition: int) -> None:
        slab = self._slabs[partition]
        self._producer.produce_slab(self._topic, slab, partition)
        slab.clear()

    def _put_large(self, frame: Frame, seq: int, key: bytes, partition: int) -> int:
        """Send a change that is larger than a slab; returns its checksum."""
        header, body = frame
        value = header + long(seq) + body
        self._put_alone(value, key, partition)
        return crc32(value)

    def _put_alone(self, value: bytes, key: bytes, partition: int) -> None:
        if len(value) > topics.MESSAGE_BYTES_MAX:
            raise RowTooLargeError(
                f"a row of {len(value)} bytes exceeds the maximum message size of {topics.MESSAGE_BYTES_MAX} bytes: "
                f"{self._row_key(value)}",
                source=self._source,
                hint="drop the large column from capture (columns.drop), then restart the source",
            )
        self._producer.produce(self._topic, key, value, partition)
        self.bytes_total += len(value)

    def _slab(self, partition: int) -> Slab:
        slab = self._slabs.get(partition)
        if slab is None:
            slab = self._slabs[partition] = Slab()
        return slab
