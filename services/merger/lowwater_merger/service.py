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
from lowwater.bus.consumer import AssignedConsumer, open_transaction, read_to_end
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
from lowwater.records import Abandon, Commit, Copied, Mark, Progress, Wanted
from lowwater.schemas import SchemaStore, open_store
from lowwater_merger import metrics, status
from lowwater_merger.core import Kind, Merger
from lowwater_merger.output import Output
from lowwater_merger.spool import DiskSpool
from lowwater_merger.watermark import mark_clock
from lowwater_merger.words import obey

CONSUME_COUNT = 10_000
CONSUME_SECONDS = 0.005
#: fewer records than this at a time: everything there was has been read
CAUGHT_UP_COUNT = 1_000
#: how long a merger that is behind may fill one Kafka transaction
FILL_SECONDS_MAX = 0.5
CONTROL_SECONDS = 0.5
STATUS_SECONDS = 0.5
#: a source that has not marked for this long may be hidden behind an open Kafka transaction
HANGING_SECONDS = 5.0

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


def now_us() -> int:
    return time.time_ns() // 1000


class MergerService:
    """One group's service."""

    def __init__(self, settings: Settings, group: str, http_port: int | None = None) -> None:
        self.group = group
        self._settings = settings
        self._config = settings.group(group)
        self._log: Any = structlog.get_logger().bind(service="merger", group=group)
        http = self._config.http
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
        self._log.info("started", http_port=port, sources=self._config.sources)
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
        wanted = [*topics.shared_topics(), *topics.group_topics(self.group, self._config)]
        for source in self._config.sources:
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
            return _Session(self, merger, spool, consumer, output, self._admin, self._control).run()
        finally:
            if consumer is not None:
                consumer.close()
            if spool is not None:
                spool.close()
            producer.close()

    def _core(self) -> tuple[Merger, DiskSpool]:
        """The core as progress left it, with the sources that the config names."""
        directory = self._config.spool_directory or self._settings.state_directory / "spool"
        spool = DiskSpool(Path(directory) / f"merger-{self.group}")
        classify = Classifier(self._store, self._codec)
        messages, _ = read_to_end(
            self._settings.kafka, topics.progress(self.group), on_wait=self._on_wait, tick=self.health.tick
        )
        merger = Merger(self.group, classify, spool)
        if messages:
            progress = self._codec.decode(messages[-1].value() or b"", Progress)
            merger = Merger.from_progress(progress, classify, spool)
        for name in set(merger.sources) - set(self._config.sources):
            merger.leave(name, "no longer in the group's config", now_us())
        for name in sorted(self._config.sources):
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


class _Session:
    """The loop between a start and a doubt."""

    def __init__(
        self, service: MergerService, merger: Merger, spool: DiskSpool, consumer: AssignedConsumer,
        output: Output, admin: Admin, control: ControlReader,
    ) -> None:  # fmt: skip
        self._service = service
        self._group = service.group
        self._config = service._config
        self._merger = merger
        self._spool = spool
        self._consumer = consumer
        self._output = output
        self._admin = admin
        self._control = control
        self._hold = status.HoldWatch(service.group, self._config.hold_alarm_seconds)
        self._log: Any = structlog.get_logger().bind(service="merger", group=service.group)
        self._released_bytes = 0
        self._progress_at = time.monotonic()
        self._control_at = 0.0
        self._status_at = 0.0
        self._deleted_at = time.monotonic()
        self._deleted: dict[tuple[str, int], int] = {}
        self._repeats = 0
        self._stopped: set[str] = set()
        self._looked_at = time.monotonic()
        self._clocks: dict[str, int | None] = {}
        #: per source the offsets that an open Kafka transaction hides
        self._hidden: dict[str, str] = {}

    def run(self) -> bool:
        merger = self._merger
        self._log.info("session", next_gsn=merger.next_gsn, sources=sorted(merger.sources))
        while not self._service.is_stopping:
            self._service.health.tick()
            if not self._look_at_control():
                return False
            messages = self._consumer.consume(CONSUME_COUNT, CONSUME_SECONDS)
            merger.feed(messages)
            self._seek()
            self._release()
            merger.spill(self._config.memory_bytes_max)
            self._pause()
            if self._is_due(len(messages)):
                self._commit()
            self._delete()
            self._show()
        return False

    def _is_due(self, consumed: int) -> bool:
        """Small Kafka transactions are for those who wait for them: a merger that is behind fills them."""
        since_seconds = time.monotonic() - self._progress_at
        if not self._output.is_begun:
            return since_seconds > self._config.progress_seconds
        return consumed < CAUGHT_UP_COUNT or since_seconds > FILL_SECONDS_MAX

    def _look_at_control(self) -> bool:
        """False once the group is to be stopped."""
        now = time.monotonic()
        if now - self._control_at < CONTROL_SECONDS:
            return True
        self._control_at = now
        self._control.poll()
        wanted = self._control.fold.get("group", self._group)
        if wanted.control.wanted is Wanted.STOPPED:
            return False
        if obey(self._merger, wanted, now_us()):
            self._service.forget_too_large()
            self._seek()
            self._commit()
        while self._control.fold.get("group", self._group).control.wanted is Wanted.PAUSED:
            if self._service.is_stopping:
                return False
            self._service.health.tick()
            self._service.health.show({**status.status(self._merger, None), "state": "paused"})
            self._control.poll()
            time.sleep(0.2)
        return True

    def _seek(self) -> None:
        """A source that was stopped, excluded or included is read again from its last progress."""
        for name in self._merger.rewound:
            state = self._merger.sources[name]
            self._consumer.seek({(topics.changes(name), p): s.offset for p, s in state.saved.items()})
            if state.error is not None and name not in self._stopped:
                self._stopped.add(name)
                self._log.error("source stopped", **state.error.fields())
                metrics.ERRORS.labels(self._group, type(state.error).__name__).inc()
            elif state.error is None:
                self._stopped.discard(name)
        self._merger.rewound.clear()

    def _release(self) -> None:
        merger, output = self._merger, self._output
        latency = metrics.LATENCY.labels(self._group)
        count = changes = skipped = 0
        # every one when few wait, every sixteenth in a rush: an observation costs more than a change
        sampled = 15 if sum(s.lanes.count for s in merger.sources.values()) > 1000 else 0
        now = now_us()
        while (released := merger.release()) is not None:
            self._released_bytes += output.put(released)
            count += 1
            changes += released.transaction.count
            skipped += released.transaction.skip is not None
            if count & sampled == 0:
                latency.observe(max(0.0, (now - released.transaction.commit_ts_us) / 1e6))
            if self._released_bytes >= self._config.release_bytes_max:
                self._commit()
                now = now_us()
        metrics.RELEASED.labels(self._group).inc(count)
        metrics.RELEASED_CHANGES.labels(self._group).inc(changes)
        metrics.SKIPPED.labels(self._group).inc(skipped)

    def _commit(self) -> None:
        positions: dict[str, dict[int, int]] = {}
        for name in self._merger.sources:
            topic = topics.changes(name)
            positions[name] = {p: o for (t, p), o in self._consumer.positions.items() if t == topic}
        progress = self._merger.progress(positions)
        offsets = {(topics.changes(s.source), p.partition): p.offset for s in progress.sources for p in s.partitions}
        self._output.commit(progress, offsets, self._consumer.group_metadata())
        self._released_bytes = 0
        self._progress_at = time.monotonic()

    def _pause(self) -> None:
        pauses = self._merger.pauses(self._config.spool_bytes_max)
        self._consumer.pause({(topics.changes(name), p) for name, p in pauses})
        metrics.PAUSED.labels(self._group).set(len(pauses))

    def _delete(self) -> None:
        """Old changes go only behind progress that is durable."""
        now = time.monotonic()
        if now - self._deleted_at < self._config.delete_seconds or self._output.is_begun:
            return
        self._deleted_at = now
        offsets = {
            (topics.changes(name), p): saved.offset
            for name, state in self._merger.sources.items()
            for p, saved in state.saved.items()
            if saved.offset > self._deleted.get((topics.changes(name), p), 0)
        }
        if offsets:
            fail_point("merger.before_delete")
            self._admin.delete_records(offsets)
            fail_point("merger.after_delete")
            self._deleted.update(offsets)

    def _look_for_hidden(self) -> None:
        """A source that no longer marks may be hidden behind a Kafka transaction that nobody has ended."""
        now = time.monotonic()
        if now - self._looked_at < HANGING_SECONDS:
            return
        self._looked_at = now
        for name, state in self._merger.sources.items():
            clock = mark_clock(state.marks)
            is_silent = clock is not None and clock == self._clocks.get(name)
            self._clocks[name] = clock
            topic = topics.changes(name)
            found = {p: open_transaction(self._service.kafka, topic, p) for p in state.saved} if is_silent else {}
            self._hidden[name] = ", ".join(f"{topic}[{p}] {o[0]} … {o[1]}" for p, o in found.items() if o)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        merger = self._merger
        holder = self._hold.look(merger)
        self._look_for_hidden()
        status.count(merger, holder)
        metrics.SPOOLED_BYTES.labels(self._group).set(self._spool.size_bytes)
        metrics.REPEATS.labels(self._group).inc(merger.repeats_dropped - self._repeats)
        self._repeats = merger.repeats_dropped
        self._service.health.show(status.status(merger, holder, self._hidden))
        stopped = [name for name, state in merger.sources.items() if state.error]
        if stopped:
            self._service.health.not_ready(f"stopped: {', '.join(stopped)}")
        else:
            self._service.health.ready()
