"""The records of copies in the ledger topic, from which an extractor learns which chunks have landed.

Copies and landing have separate producers, so that neither waits for the other. A record may be written twice, here and
when the landing repairs the topic; both have the same content.
"""

from __future__ import annotations

from collections.abc import Sequence

from lowwater.kafka import topics
from lowwater.kafka.producer import TransactionalProducer
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ManifestKind
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Aborted, Landed, Prepared
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater_spark.ledger.attempts import read_notes
from lowwater_spark.ledger.mirror import landed_record, read_ledger_of


class CopyMirror:
    """The ledger producer of one group's copies. Creating it fences the predecessor and aborts its open transaction."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, group: str) -> None:
        self._kafka = kafka
        self._codec = codec
        self._group = group
        self._topic = topics.ledger(group)
        self._producer = TransactionalProducer(kafka, f"lowwater.copy.{group}")
        self._producer.init()
        #: manifests up to this number have been checked
        self._seen = 0
        #: numbers of copies' manifests that are mirrored
        self._mirrored: set[int] = set()

    def _send(self, records: Sequence[Prepared | Landed | Aborted], point: str = "") -> None:
        if not records:
            return
        self._producer.begin()
        for record in records:
            key = self._codec.key(f"{record.n:020}")
            self._producer.produce(self._topic, key, self._codec.encode(record), 0)
        self._producer.flush()
        if point:
            fail_point(point)
        self._producer.commit()

    def prepare(self, attempt: str, n: int) -> None:
        self._send([Prepared(ManifestKind.COPY, attempt, n, 0, 0, now_us())])
        fail_point("copy.prepared")

    def landed(self, chain: Chain) -> int:
        """Mirrors all manifests of copies that are not mirrored yet, also of a predecessor; returns their number."""
        found = [m for m in chain.log(self._seen + 1) if m.kind is ManifestKind.COPY and m.n not in self._mirrored]
        self._send([landed_record(manifest) for manifest in found], "copy.landed_produced")
        self._mirrored.update(manifest.n for manifest in found)
        self._seen = chain.head.n
        return len(found)

    def aborted(self, attempt: str, n: int, reason: str) -> None:
        """Raises FencedError if another application has taken over since."""
        self._send([Aborted(attempt, n, reason, now_us())])

    def repair(self, chain: Chain) -> int:
        """Writes the records that are missing after a crash; returns their number.

        An attempt is prepared before its manifest is written, so the manifest's number is not below the prepared one.
        """
        ledger = read_ledger_of(chain, self._kafka, self._codec, self._group)
        begun = {p.attempt: p for p in ledger.open_attempts.values() if p.kind == ManifestKind.COPY}
        self._mirrored = ledger.numbers
        self._seen = min((p.n for p in begun.values()), default=chain.head.n + 1) - 1
        for manifest in chain.log(self._seen + 1) if begun else ():
            begun.pop(manifest.attempt, None)
        # a note is written before Prepared: an attempt without a note was decided, and its note deleted by a sweep
        notes = {note.attempt: note for note in read_notes(chain.store)} if begun else {}
        lost = [p for p in begun.values() if p.attempt not in notes or not notes[p.attempt].can_land_in(chain)]
        count = self.landed(chain)
        self._send([Aborted(p.attempt, p.n, "its chunks have landed, or were replaced", now_us()) for p in lost])
        return count + len(lost)

    def close(self) -> None:
        self._producer.close()
