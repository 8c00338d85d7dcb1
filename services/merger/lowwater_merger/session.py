"""The merger's main loop: read changes, release transactions, commit, report status."""

from __future__ import annotations

import time
from typing import Any, Protocol

import structlog

from lowwater.control.fold import ControlReader
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import AssignedConsumer, Place
from lowwater.kafka.read_check import ReadWatch
from lowwater.records.types import Wanted
from lowwater.runtime.config import GroupConfig, KafkaConfig
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater.status import tracing
from lowwater.status.health import Health
from lowwater_merger import metrics, status
from lowwater_merger.core.commands import obey
from lowwater_merger.core.merger import Merger
from lowwater_merger.output import Output
from lowwater_merger.spool import DiskSpool

CONSUME_COUNT = 10_000
CONSUME_SECONDS = 0.005
#: fewer records than this in one batch: the merger has caught up
CAUGHT_UP_COUNT = 1_000
#: how long a merger that lags may fill one Kafka transaction
FILL_SECONDS_MAX = 0.5
CONTROL_SECONDS = 0.5
STATUS_SECONDS = 0.5


class Host(Protocol):
    """The part of the service that a session uses."""

    group: str
    config: GroupConfig
    health: Health

    @property
    def is_stopping(self) -> bool: ...

    @property
    def is_restarted(self) -> bool: ...

    @property
    def kafka(self) -> KafkaConfig: ...

    def forget_too_large(self) -> None: ...

    def tick(self) -> None: ...

    def progressed(self) -> None: ...


class Session:
    """One session: from the fencing of the predecessor until a stop (run returns False) or an error (run raises)."""

    def __init__(
        self, service: Host, merger: Merger, spool: DiskSpool, consumer: AssignedConsumer,
        output: Output, admin: Admin, control: ControlReader,
    ) -> None:  # fmt: skip
        self._service = service
        self._group = service.group
        self._config = service.config
        self._merger = merger
        self._spool = spool
        self._consumer = consumer
        self._output = output
        self._admin = admin
        self._control = control
        self._hold = status.HoldWatch(service.group, self._config.hold_alarm_seconds)
        self._marks = status.MarkWatch()
        self._log: Any = structlog.get_logger().bind(service="merger", group=service.group)
        self._released_bytes = 0
        self._progress_at = time.monotonic()
        self._control_at = 0.0
        self._status_at = 0.0
        self._deleted_at = time.monotonic()
        self._deleted: dict[tuple[str, int], int] = {}
        self._repeats = 0
        self._stopped: set[str] = set()
        self._reading = ReadWatch(service.kafka, admin.ask_ends)
        self._paused: set[Place] = set()
        self._first_gsn = merger.next_gsn
        metrics.HOLD_ALARM.labels(service.group).set(self._config.hold_alarm_seconds)

    def run(self) -> bool:
        merger, health = self._merger, self._service.health
        self._log.info("session", next_gsn=merger.next_gsn, sources=sorted(merger.sources))
        while not self._service.is_stopping:
            self._service.tick()
            if not self._look_at_control():
                return False
            messages = self._consumer.consume(CONSUME_COUNT, CONSUME_SECONDS)
            merger.feed(messages)
            self._seek()
            health.doing("the release of transactions")
            self._release()
            merger.spill(self._config.memory_bytes_max)
            self._pause()
            if self._is_due(len(messages)):
                health.doing("the commit of a Kafka transaction")
                self._commit()
            self._delete()
            health.doing("the reading of changes")
            self._show()
            if self._reading.why:
                health.trouble(self._reading.why)
            else:
                self._service.progressed()
        return False

    def _is_due(self, consumed: int) -> bool:
        """Whether to commit now: at once if the merger has caught up; while it lags, larger Kafka transactions are
        filled."""
        since_seconds = time.monotonic() - self._progress_at
        if not self._output.is_begun:
            return since_seconds > self._config.progress_seconds
        return consumed < CAUGHT_UP_COUNT or since_seconds > FILL_SECONDS_MAX

    def _look_at_control(self) -> bool:
        """Apply operator commands, and wait while the group is paused. False if the session must end."""
        now = time.monotonic()
        if now - self._control_at < CONTROL_SECONDS:
            return True
        self._control_at = now
        self._control.poll()
        wanted = self._control.fold.get("group", self._group)
        if wanted.control.wanted.is_at_rest or self._service.is_restarted:
            return False
        if obey(self._merger, wanted, now_us()):
            self._service.forget_too_large()
            self._seek()
            self._commit()
        if self._output.is_begun and self._is_paused():
            # a pause may last longer than the timeout of a Kafka transaction
            self._commit()
        while self._is_paused():
            if self._service.is_stopping or self._service.is_restarted:
                return False
            self._service.tick()
            self._service.progressed()
            self._service.health.show({**status.status(self._merger, None), "state": "paused"})
            self._control.poll()
            time.sleep(0.2)
        return True

    def _is_paused(self) -> bool:
        return self._control.fold.get("group", self._group).control.wanted is Wanted.PAUSED

    def _seek(self) -> None:
        """Seek the sources that must be read again to the offsets of their last progress."""
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
        # under load only every sixteenth transaction is observed: an observation costs more than a change
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
        with tracing.span("release", group=self._group, next_gsn=progress.next_gsn):
            self._output.commit(progress, offsets, self._consumer.group_metadata())
        self._released_bytes = 0
        self._progress_at = time.monotonic()

    def _pause(self) -> None:
        pauses = self._merger.pauses(self._config.spool_bytes_max)
        self._paused = {(topics.changes(name), p) for name, p in pauses}
        self._consumer.pause(self._paused)
        metrics.PAUSED.labels(self._group).set(len(pauses))

    def _delete(self) -> None:
        """Delete changes that are below the durable progress."""
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

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        merger = self._merger
        holder = self._hold.look(merger)
        self._reading.look(self._consumer.positions, self._paused)
        self._reading.check()
        status.count(merger, holder, self._marks, now_us())
        unread = self._consumer.unread()
        for name in merger.sources:
            topic = topics.changes(name)
            known = sum(n for (t, _), n in unread.items() if t == topic)
            behind = max(known, self._reading.behind(topic, self._consumer.positions))
            metrics.UNREAD.labels(self._group, name).set(behind)
        metrics.SPOOLED_BYTES.labels(self._group).set(self._spool.size_bytes)
        metrics.REPEATS.labels(self._group).inc(merger.repeats_dropped - self._repeats)
        self._repeats = merger.repeats_dropped
        hidden = {name: self._reading.hidden(topics.changes(name)) for name in merger.sources}
        self._service.health.show(status.status(merger, holder, hidden))
        stopped = [name for name, state in merger.sources.items() if state.error]
        is_caught_up = len(unread) == len(self._consumer.positions) and not any(unread.values())
        if merger.next_gsn > self._first_gsn or is_caught_up:
            # the merger is past the position at which the previous session failed
            self._service.health.recovered()
        if stopped:
            self._service.health.not_ready(f"stopped: {', '.join(stopped)}")
        else:
            self._service.health.ready()
