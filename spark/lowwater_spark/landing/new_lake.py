"""A new lake for a group that already has transactions: it begins at the current gsn, with copies of all tables.

The older records that the topic still has are not a complete state, and copies planned earlier landed in another lake,
if at all. So the first manifest contains the gsn at which the lake begins, marks all tables stale, and closes those
copies. Then copies of all tables of every source are requested, with the manifest's attempt as the request id: after a
crash only the missing requests are repeated.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import structlog
from confluent_kafka import Message

from lowwater.control import commands as words
from lowwater.control.fold import ControlFold, commit_control
from lowwater.errors import LandingConflictError
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, read_to_end, topic_ends
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ALL_TABLES, Landed, Manifest, ManifestKind, StaleTables
from lowwater.records.codec import RecordCodec
from lowwater.records.types import Chunk, Commit, CopyRequest, OrderKey, Progress, Skipped
from lowwater.runtime.config import KafkaConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater_spark.ledger.ledger import Draft, commit_draft
from lowwater_spark.ledger.mirror import read_ledger

_log = structlog.get_logger()

#: number of offsets at the topic's end in which the last end of a transaction is searched first
_WINDOW = 2_000
#: timeout for reading the topic's first record
_FIRST_SECONDS = 10.0


class Beginning:
    """Begins the lake of one group."""

    def __init__(self, kafka: KafkaConfig, codec: RecordCodec, group: str, sources: Sequence[str]) -> None:
        self._kafka, self._codec, self._group, self._sources = kafka, codec, group, sources
        self._topic = topics.transactions(group)

    def begin(self, chain: Chain, topic_id: str) -> None:
        """Writes the first manifest, if the lake is new and the group is not."""
        if chain.head.n or not self._has_a_past():
            return
        offset, gsn = self._present()
        draft = Draft(
            ManifestKind.BEGIN,
            self._group,
            f"begin-{uuid.uuid4().hex[:12]}",
            landed=Landed(topic=self._topic, topic_id=topic_id, offset=offset),
            gsn=gsn,
            clock_us=now_us(),
            history_from=gsn,
            stale=(
                StaleTables(
                    gsn=gsn,
                    source="",
                    tables=(ALL_TABLES,),
                    reason=f"the lake begins at gsn {gsn}, and the table has not been copied to it yet",
                ),
            ),
            closed_copies=tuple(sorted(self._planned_copies())),
        )
        try:
            manifest = commit_draft(chain, draft, points="begin")
        except LandingConflictError as error:
            _log.info("another process began the lake", why=error.what)
            return
        _log.info("a new lake", gsn=manifest.gsn, offset=offset, closed_copies=len(manifest.closed_copies))

    def ask_for_copies(self, chain: Chain, control: ControlFold) -> None:
        """Requests copies of all tables, once for each source, also across crashes."""
        begun = first_manifest(chain)
        if begun is None or begun.kind is not ManifestKind.BEGIN:
            return
        copied = {found.source for found in chain.copied}
        for source in self._sources:
            asked = {request.request for request in control.get(words.SOURCE, source).control.copies}
            if source not in copied and begun.attempt not in asked:
                reason = f"the lake of group {self._group} is new"
                change = words.copy(CopyRequest(ALL_TABLES, begun.attempt, reason))
                commit_control(self._kafka, self._codec, words.SOURCE, source, change)
                _log.info("asked for copies of all tables", source=source, request=begun.attempt)
                fail_point("begin.copies_asked")

    def _has_a_past(self) -> bool:
        """True if manifests were mirrored before, or if the topic does not begin with the first transaction."""
        if read_ledger(self._kafka, self._codec, self._group).numbers:
            return True
        low, high = topic_ends(self._kafka, self._topic, 0)
        if low == high:
            return high > 0
        consumer = AssignedConsumer(self._kafka, "lowwater.peek", {(self._topic, 0): low})
        try:
            first = consumer.consume(1, _FIRST_SECONDS)
        finally:
            consumer.close()
        if not first:
            return low > 0  # nothing is committed yet
        key = self._codec.decode(first[0].key() or b"", OrderKey)
        return (key.gsn, key.seq) != (1, 1)

    def _present(self) -> tuple[int, int]:
        """The offset after the last transaction, and its gsn."""
        low, high = topic_ends(self._kafka, self._topic, 0)
        window = _WINDOW
        while True:
            start = max(low, high - window)
            ends = [m for m in read_to_end(self._kafka, self._topic, start=start)[0] if self._is_end(m)]
            if ends:
                last = ends[-1]
                return (last.offset() or 0) + 1, self._codec.decode(last.key() or b"", OrderKey).gsn
            if start == low:
                return high, self._released()
            window *= 16

    def _is_end(self, message: Message) -> bool:
        return self._codec.record_type(message.value() or b"") in (Commit, Skipped)

    def _released(self) -> int:
        """The last released gsn, from the merger's progress: the topic contains no transaction any more."""
        found = read_to_end(self._kafka, topics.progress(self._group))[0]
        return self._codec.decode(found[-1].value() or b"", Progress).next_gsn - 1 if found else 0

    def _planned_copies(self) -> set[str]:
        found = set()
        for source in self._sources:
            for message in read_to_end(self._kafka, topics.chunks(source))[0]:
                found.add(self._codec.decode(message.value() or b"", Chunk).copy)
        return found


def first_manifest(chain: Chain) -> Manifest | None:
    return chain.manifest(1) if chain.head.n else None
