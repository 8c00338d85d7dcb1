"""The merger service. Each session first fences its predecessor, then reads its progress from Kafka."""

from __future__ import annotations

from pathlib import Path

from lowwater.errors import (
    LowwaterError,
    ProgressLostError,
    SchemaError,
    TransactionTooLargeError,
)
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, read_to_end, topic_ends
from lowwater.kafka.producer import TransactionalProducer, transaction_seconds_max
from lowwater.kafka.topics import Topic
from lowwater.records.codec import RecordCodec
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import Abandon, Commit, Copied, Mark, Progress, Stale
from lowwater.records.wire import schema_id_of
from lowwater.runtime.config import Settings
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.service import SessionService, http_of
from lowwater.runtime.times import now_us
from lowwater_merger import metrics
from lowwater_merger.core.merger import Merger, RecordKind
from lowwater_merger.joining import Joining
from lowwater_merger.output import Output
from lowwater_merger.session import Session
from lowwater_merger.spool import DiskSpool

_KINDS: dict[type, RecordKind] = {
    Commit: RecordKind.COMMIT,
    Abandon: RecordKind.ABANDON,
    Mark: RecordKind.MARK,
    # published as changes of a transaction
    Copied: RecordKind.CHANGE,
    Stale: RecordKind.CHANGE,
}


class Classifier:
    """Determines the kind of a record from its value. The merger calls it once for each schema id."""

    def __init__(self, store: SchemaStore, codec: RecordCodec) -> None:
        self._store = store
        self._codec = codec

    def __call__(self, value: bytes) -> RecordKind:
        known = self._codec.record_type(value)
        if known is not None:
            return _KINDS.get(known, RecordKind.FOREIGN)
        try:
            return RecordKind.CHANGE if self._store.entry(schema_id_of(value)).table else RecordKind.FOREIGN
        except SchemaError:
            return RecordKind.FOREIGN


class MergerService(SessionService):
    """The merger of one group."""

    kind = "group"
    service = "merger"

    def __init__(self, settings: Settings, group: str, http_port: int | None = None) -> None:
        self.group = group
        self.config = settings.group(group)
        super().__init__(settings, group, http_of(self.config.http, http_port), metrics.ERRORS)
        #: by source: a transaction that did not fit into one Kafka transaction; the source stays stopped until the
        #: next operator command for the group
        self._too_large: dict[str, TransactionTooLargeError] = {}

    def _topics(self) -> list[Topic]:
        wanted = [*topics.shared_topics(), *topics.group_topics(self.group, self.config)]
        for source in self.config.sources:
            wanted += topics.source_topics(source, self._settings.source(source))
        return wanted

    def _watched(self, wanted: list[Topic]) -> list[str]:
        """All topics but positions and chunks: these are created here so that services can start in any order, but only
        the extractor reads and writes them."""
        others = {name for s in self.config.sources for name in (topics.positions(s), topics.chunks(s))}
        return [topic.name for topic in wanted if topic.name not in others]

    def _can_go_on(self, error: LowwaterError) -> bool:
        """After a TransactionTooLargeError the next session starts with that source stopped; other sources are read."""
        if isinstance(error, TransactionTooLargeError):
            self._too_large[error.source or ""] = error
            return True
        return super()._can_go_on(error)

    # -- a session ---------------------------------------------------------------------------------------

    def _run_session(self) -> bool:
        metrics.SESSIONS.labels(self.group).inc()
        producer = TransactionalProducer(self.kafka, f"lowwater.merger.{self.group}", self.tick, self.progressed)
        consumer: AssignedConsumer | None = None
        spool: DiskSpool | None = None
        try:
            producer.init()
            fail_point("merger.after_init")
            merger, spool = self._core()
            offsets = {
                (topics.changes(name), p): saved.offset
                for name, state in merger.sources.items()
                for p, saved in state.saved.items()
            }
            consumer = AssignedConsumer(self.kafka, f"lowwater.{self.group}", offsets)
            output = Output(producer, self._codec, self.group, transaction_seconds_max(self.kafka))
            return Session(self, merger, spool, consumer, output, self._admin, self._control).run()
        finally:
            if consumer is not None:
                consumer.close()
            if spool is not None:
                spool.close()
            producer.close()

    def _core(self) -> tuple[Merger, DiskSpool]:
        """The core restored from the last progress record, with the sources of the current config.

        Raises ProgressLostError if the progress topic is empty and the ordered topic is not.
        """
        directory = self.config.spool_directory or self._settings.state_directory / "spool"
        spool = DiskSpool(Path(directory), f"merger-{self.group}")
        classify = Classifier(self._store, self._codec)
        messages, _ = read_to_end(self.kafka, topics.progress(self.group), on_wait=self._on_wait, tick=self.tick)
        merger = Merger(self.group, classify, spool)
        if messages:
            progress = self._codec.decode(messages[-1].value() or b"", Progress)
            merger = Merger.from_progress(progress, classify, spool)
        elif self._has_released():
            # gsn 1 was written before and must not be assigned again
            raise ProgressLostError(
                f"{topics.progress(self.group)} is empty, but {topics.transactions(self.group)} is not: it is unknown "
                "which transactions were released",
                hint=f"restore the topic, or run `lowwater-merger --rebuild-progress --group {self.group}`, which "
                "rebuilds it from the ordered topic; then retry the group",
            )
        for name in set(merger.sources) - set(self.config.sources):
            merger.leave(name, "no longer in the group's config", now_us())
        joining = Joining(self.kafka, self._admin, self._codec, self.group)
        for name in sorted(self.config.sources):
            known, partitions = merger.known(name), self._settings.source(name).partitions
            start = joining.start_of(name, partitions, known)
            if start is not None and name in merger.sources:
                merger.leave(name, "unreleased records of its changes topic were deleted", now_us())
            if start is not None:
                merger.join(name, partitions, start.topic_id, now_us(), start.generation, start.offsets)
            elif name not in merger.sources and known is not None:
                merger.join(name, partitions, known.topic_id, now_us())
            merger.bind(name, topics.changes(name))
        for name, error in list(self._too_large.items()):
            merger.stop(name, error)
        merger.rewound.clear()
        return merger, spool

    def _has_released(self) -> bool:
        """Whether the ordered topic contains, or contained, a committed transaction."""
        topic = topics.transactions(self.group)
        first, _ = topic_ends(self.kafka, topic, 0, tick=self.tick)
        return first > 0 or bool(read_to_end(self.kafka, topic, on_wait=self._on_wait, tick=self.tick, count_max=1)[0])

    def forget_too_large(self) -> None:
        self._too_large.clear()
