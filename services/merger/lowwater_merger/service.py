"""The merger's loop: read the changes topics, release, commit. One thread.

A session begins by fencing its predecessor, then reads progress from Kafka. Any doubt about Kafka ends the
session, and a new one begins in the same way as after a crash.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path
from types import FrameType
from typing import Any

import structlog

from lowwater import topics
from lowwater.bus.admin import Admin
from lowwater.bus.consumer import AssignedConsumer, read_to_end
from lowwater.bus.producer import TransactionalProducer
from lowwater.codec.wire import schema_id_of
from lowwater.config import HttpConfig, KafkaConfig, Settings
from lowwater.control import ControlReader
from lowwater.errors import (
    BusError,
    FencedError,
    LowwaterError,
    SchemaError,
    TopicError,
    TransactionTooLargeError,
)
from lowwater.failpoints import fail_point
from lowwater.health import Health, serve
from lowwater.record_codec import RecordCodec
from lowwater.records import Abandon, Commit, Copied, Mark, Progress
from lowwater.schemas import SchemaStore, open_store
from lowwater_merger import metrics
from lowwater_merger.core import Kind, Merger
from lowwater_merger.output import Output
from lowwater_merger.session import Session, now_us
from lowwater_merger.spool import DiskSpool

_KINDS: dict[type, Kind] = {
    Commit: Kind.COMMIT,
    Abandon: Kind.ABANDON,
    Mark: Kind.MARK,
    # travels as the one change of its transaction
    Copied: Kind.CHANGE,
}


class Classifier:
    """Which kind of record a value is, asked once for each schema id."""

    def __init__(self, store: SchemaStore, codec: RecordCodec) -> None:
        self._store = store
        self._codec = codec

    def __call__(self, value: bytes) -> Kind:
        known = self._codec.record_type(value)
        if known is not None:
            return _KINDS.get(known, Kind.FOREIGN)
        try:
            return Kind.CHANGE if self._store.entry(schema_id_of(value)).table else Kind.FOREIGN
        except SchemaError:
            return Kind.FOREIGN


class MergerService:
    """One group's service."""

    def __init__(self, settings: Settings, group: str, http_port: int | None = None) -> None:
        self.group = group
        self._settings = settings
        self.config = settings.group(group)
        self._log: Any = structlog.get_logger().bind(service="merger", group=group)
        http = self.config.http
        self._http = http if http_port is None else HttpConfig(host=http.host, port=http_port)
        self.health = Health()
        self._is_stopping = False
        #: transactions that did not fit; their sources stay stopped until an operator skips them
        self._too_large: dict[str, TransactionTooLargeError] = {}
        self._admin: Admin
        self._store: SchemaStore
        self._codec: RecordCodec
        self._control: ControlReader

    def run(self) -> int:
        """Until stopped; the process's exit code."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        port = serve(self.health, self._http)
        self._log.info("started", http_port=port, sources=self.config.sources)
        self._prepare()
        while not self._is_stopping:
            try:
                if not self._run_session():
                    break
            except FencedError as error:
                self._failed(error)
                return 3
            except TransactionTooLargeError as error:
                self._failed(error)
                self._too_large[error.source or ""] = error
            except BusError as error:
                self._log.warning("session ended", **error.fields())
                metrics.ERRORS.labels(self.group, type(error).__name__).inc()
                time.sleep(0.1)
            except LowwaterError as error:
                self._failed(error)
                self._wait_for_word()
        self._log.info("stopped")
        return 0

    def _on_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_stopping = True

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def kafka(self) -> KafkaConfig:
        return self._settings.kafka

    def _prepare(self) -> None:
        self._admin = Admin(self._settings.kafka)
        self._admin.wait_for_broker(60)
        wanted = [*topics.shared_topics(), *topics.group_topics(self.group, self.config)]
        for source in self.config.sources:
            wanted += topics.source_topics(source, self._settings.source(source))
        self._admin.ensure(wanted)
        self._store = open_store(self._settings)
        self._codec = self._store.record_codec()
        self._control = ControlReader(self._settings.kafka, self._codec)

    def _failed(self, error: LowwaterError) -> None:
        self._log.error("failed", **error.fields())
        metrics.ERRORS.labels(self.group, type(error).__name__).inc()
        self.health.not_ready(str(error))
        self.health.show({"group": self.group, "state": "failed", "error": error.fields()})

    def _wait_for_word(self) -> None:
        version = self._control.fold.get("group", self.group).version
        while not self._is_stopping and self._control.fold.get("group", self.group).version == version:
            self.health.tick()
            self._control.poll()
            time.sleep(0.2)

    # -- a session ---------------------------------------------------------------------------------------

    def _run_session(self) -> bool:
        metrics.SESSIONS.labels(self.group).inc()
        producer = TransactionalProducer(self._settings.kafka, f"lowwater.merger.{self.group}", self.health.tick)
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
            consumer = AssignedConsumer(self._settings.kafka, f"lowwater.{self.group}", offsets)
            output = Output(producer, self._codec, self.group)
            return Session(self, merger, spool, consumer, output, self._admin, self._control).run()
        finally:
            if consumer is not None:
                consumer.close()
            if spool is not None:
                spool.close()
            producer.close()

    def _core(self) -> tuple[Merger, DiskSpool]:
        """The core as progress left it, with the sources that the config names."""
        directory = self.config.spool_directory or self._settings.state_directory / "spool"
        spool = DiskSpool(Path(directory) / f"merger-{self.group}")
        classify = Classifier(self._store, self._codec)
        messages, _ = read_to_end(
            self._settings.kafka, topics.progress(self.group), on_wait=self._on_wait, tick=self.health.tick
        )
        merger = Merger(self.group, classify, spool)
        if messages:
            progress = self._codec.decode(messages[-1].value() or b"", Progress)
            merger = Merger.from_progress(progress, classify, spool)
        for name in set(merger.sources) - set(self.config.sources):
            merger.leave(name, "no longer in the group's config", now_us())
        for name in sorted(self.config.sources):
            topic_id = self._admin.topic_id(topics.changes(name))
            if name not in merger.sources:
                merger.join(name, self._settings.source(name).partitions, topic_id, now_us())
            elif merger.sources[name].topic_id != topic_id:
                raise TopicError(
                    f"topic {topics.changes(name)} was deleted and made again: its offsets mean something else now",
                    source=name,
                    hint="take the source out of the group, start the merger, put it back: it joins anew",
                )
            merger.bind(name, topics.changes(name))
        for name, error in list(self._too_large.items()):
            merger.stop(name, error)
        merger.rewound.clear()
        return merger, spool

    def _on_wait(self, what: str) -> None:
        self._log.warning("waiting", what=what)
        self.health.not_ready(what)

    def forget_too_large(self) -> None:
        self._too_large.clear()
