"""The ledger topic with Prepared, Landed and Aborted records, and a consumer group's offsets for lag monitoring.

Both only mirror the manifests, and are repaired from them after a crash or when the topic was deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer

from lowwater.kafka import topics
from lowwater.kafka.client import client_settings
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.producer import TransactionalProducer
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Manifest, ManifestKind
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Aborted, Landed, LandedChunk, Prepared
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us

#: manifests per Kafka transaction when the topic is rebuilt
_SLAB = 1_000


def landed_record(manifest: Manifest) -> Landed:
    chunks = tuple(LandedChunk(f.table, f.copy_id, f.chunk) for f in manifest.files if f.copy_id)
    return Landed(
        kind=manifest.kind,
        attempt=manifest.attempt,
        n=manifest.n,
        offset=manifest.landed.offset,
        gsn=manifest.gsn,
        transactions=manifest.transactions,
        rows=sum(f.rows for f in manifest.files),
        files=len(manifest.files),
        bytes=sum(f.bytes for f in manifest.files),
        chunks=chunks,
        at_us=manifest.at_us,
    )


@dataclass
class LedgerTopic:
    """The content of the ledger topic."""

    #: numbers of the manifests that are mirrored
    numbers: set[int] = field(default_factory=set)
    #: number of the last manifest that the landing has mirrored
    last: int = 0
    #: the attempt with which the lake began, if it did not begin at the first transaction
    begun: str = ""
    #: attempts with a Prepared record, but neither Landed nor Aborted
    open_attempts: dict[str, Prepared] = field(default_factory=dict)


def read_ledger(kafka: KafkaConfig, codec: RecordCodec, group: str) -> LedgerTopic:
    found = LedgerTopic()
    for message in read_to_end(kafka, topics.ledger(group))[0]:
        value = message.value() or b""
        kind = codec.record_type(value)
        if kind is Prepared:
            prepared = codec.decode(value, Prepared)
            found.open_attempts[prepared.attempt] = prepared
        elif kind is Landed:
            landed = codec.decode(value, Landed)
            if landed.kind == ManifestKind.BEGIN:
                found = LedgerTopic(begun=landed.attempt)  # earlier records are of another lake
            found.open_attempts.pop(landed.attempt, None)
            found.numbers.add(landed.n)
            # copies have a separate producer, which may be ahead
            if landed.kind != ManifestKind.COPY:
                found.last = max(found.last, landed.n)
        else:
            found.open_attempts.pop(codec.decode(value, Aborted).attempt, None)
    return found


def read_ledger_of(chain: Chain, kafka: KafkaConfig, codec: RecordCodec, group: str) -> LedgerTopic:
    """The content of the ledger topic for this lake; records of another lake are ignored."""
    found = read_ledger(kafka, codec, group)
    first = chain.manifest(1) if chain.head.n else None
    if first is not None and first.kind is ManifestKind.BEGIN and first.attempt != found.begun:
        return LedgerTopic()
    return found


class Mirror:
    """The ledger producer of one group's landing. Creating it fences the producer of another landing application."""

    def __init__(
        self, kafka: KafkaConfig, codec: RecordCodec, group: str, tick: Callable[[], None] = lambda: None
    ) -> None:
        """`tick`: called while waiting for Kafka."""
        self._kafka = kafka
        self._codec = codec
        self._group = group
        self._topic = topics.ledger(group)
        self._producer = TransactionalProducer(kafka, f"lowwater.land.{group}", tick)
        self._producer.init()
        fail_point("land.after_init")
        settings = {"group.id": topics.land_group(group), **client_settings(kafka)}
        #: first offsets of attempts that were neither landed nor aborted: their process crashed or was stopped
        self.unfinished: set[int] = set()
        # provides only the group's name: it never joins, so offsets sent for the group are accepted
        self._member = Consumer(settings)

    def _send(self, records: Iterable[Prepared | Landed | Aborted], landed: int | None, point: str = "") -> None:
        self._producer.begin()
        for record in records:
            key = self._codec.key(f"{record.n:020}")
            self._producer.produce(self._topic, key, self._codec.encode(record), 0)
        # before the offsets: without this delay the broker may still be completing the previous transaction
        self._producer.flush()
        if point:
            fail_point(point)
        if landed is not None:
            place = {(topics.transactions(self._group), 0): landed}
            self._producer.send_offsets(place, self._metadata())
        self._producer.commit()

    def _metadata(self) -> Any:
        return self._member.consumer_group_metadata()

    def prepare(self, prepared: Prepared) -> None:
        self._send([prepared], None)
        fail_point("land.prepared")

    def landed(self, manifest: Manifest) -> None:
        self._send([landed_record(manifest)], manifest.landed.offset, "land.landed_produced")
        fail_point("land.mirrored")

    def aborted(self, attempt: str, n: int, reason: str) -> None:
        """Raises FencedError if another application has taken over since."""
        self._send([Aborted(attempt, n, reason, now_us())], None)

    def repair(self, chain: Chain) -> int:
        """Writes the records that the manifests imply and the topic lacks; returns their number."""
        ledger = read_ledger_of(chain, self._kafka, self._codec, self._group)
        open_attempts = ledger.open_attempts
        self.unfinished = {p.from_offset for p in open_attempts.values() if p.kind == ManifestKind.LAND}
        missing: list[Landed | Aborted] = []
        count = 0
        for n in range(ledger.last + 1, chain.head.n + 1):
            if n in ledger.numbers:
                continue
            manifest = chain.manifest(n)
            open_attempts.pop(manifest.attempt, None)
            missing.append(landed_record(manifest))
            if len(missing) >= _SLAB:
                count += len(missing)
                self._send(missing, None)
                missing = []
        # only attempts that can never land: a paused process may still commit one that does not conflict
        lost = [
            p
            for p in open_attempts.values()
            if p.kind == ManifestKind.LAND and p.from_offset < chain.head.landed.offset
        ]
        missing += [
            Aborted(p.attempt, p.n, f"offsets from {p.from_offset} were landed by another attempt", now_us())
            for p in lost
        ]
        count += len(missing)
        if missing or count:
            self._send(missing, chain.head.landed.offset if chain.head.landed.topic else None)
        return count

    def close(self) -> None:
        self._member.close()
        self._producer.close()
