"""The extractor's main loop: poll the source, publish, commit, acknowledge. Single-threaded; all state is in Kafka.

A session first fences the session before it, then reads the position from Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog
from prometheus_client import Counter

from lowwater.control.fold import ControlReader
from lowwater.errors import IncarnationError, LowwaterError, SourceLostError, TopicError
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end, topic_ends
from lowwater.kafka.topics import Topic
from lowwater.records.ids import next_generation
from lowwater.records.positions import ORDER_MIN
from lowwater.records.types import Position, SourceNote, TableCopies, TableCopy, Wanted
from lowwater.runtime.config import Settings
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.service import SessionService, http_of
from lowwater.runtime.times import now_us
from lowwater.status.health import STALL_SECONDS
from lowwater_extractor import metrics
from lowwater_extractor.api import Polled, SeenVersions, Source, StaleTable, Stream, ThreadMark
from lowwater_extractor.encoders import RegisteredEncoders, check_rules, column_rules
from lowwater_extractor.publish.publisher import Publisher
from lowwater_extractor.publish.slab_producer import SlabProducer
from lowwater_extractor.session.clock import SourceClock
from lowwater_extractor.session.lead_limit import LeadLimit
from lowwater_extractor.snapshot.copies import Copies
from lowwater_extractor.snapshot.copy_rules import LandedChunks
from lowwater_extractor.snapshot.stale import put_in_front
from lowwater_extractor.sources import open_source

#: pause of an idle loop: short compared with the maximum age of a batch
IDLE_SECONDS = 0.004
CONTROL_SECONDS = 0.5
STATUS_SECONDS = 0.5
#: pause between two attempts to reach a database that does not respond
BACKOFF_SECONDS = 0.25
BACKOFF_SECONDS_MAX = 15.0
#: a lagging source may not reach the end of its log for long: after publishing this long it counts as recovered
RECOVERED_SECONDS = 30.0


class Extractor(SessionService):
    """The extractor service of one source."""

    kind = "source"
    service = "extractor"

    def __init__(self, settings: Settings, name: str, http_port: int | None = None) -> None:
        self._config = settings.source(name)
        super().__init__(settings, name, http_of(self._config.http, http_port), metrics.ERRORS)
        self.health.stall_seconds = max(STALL_SECONDS, 3 * self._config.mark_seconds)
        self._source: Source = open_source(name, self._config.kind, self._config.config)
        self._known_copies: tuple[TableCopy, ...] = ()
        self._known_notes: dict[str, bytes] = {}
        self._backoff_seconds = BACKOFF_SECONDS

    def _topics(self) -> list[Topic]:
        return [*topics.shared_topics(), *topics.source_topics(self.name, self._config)]

    # -- a session ---------------------------------------------------------------------------------------

    def _run_session(self) -> bool:
        source = self._source
        metrics.SESSIONS.labels(self.name).inc()
        producer = SlabProducer(self.kafka, f"lowwater.{self.name}", self.tick, self.progressed)
        stream: Stream | None = None
        copies: Copies | None = None
        try:
            producer.init()
            fail_point("extractor.after_init")
            position = self._of_topic(self._read_position())
            clock = SourceClock(position.clock_us, int(self._config.clock_ahead_seconds_max * 1e6))
            metrics.LAG_SECONDS.labels(self.name).set_function(lambda: clock.age_seconds(now_us()))
            rules = column_rules(self._config.columns)
            if rules.drop or rules.mask:
                check_rules(rules, source.discover(), self.name)
            encoders = RegisteredEncoders(self._store, topics.changes(self.name), rules, self._known_notes)
            publisher = Publisher(
                producer, self._codec, encoders, self._config.batch, self._config.partitions, position, clock
            )
            resumes = {t.thread: t.resume for t in position.threads}
            stream = source.stream(resumes, {t.thread: t.mark for t in position.threads}, encoders)
            copies = self._copies(encoders, position.generation)
            session = _Session(
                self, publisher, stream, clock, self._control, self._config.lead_bytes_max, copies, encoders
            )
            return session.run(self._config.mark_seconds)
        finally:
            if copies is not None:
                copies.close()
            if stream is not None:
                stream.close()
            producer.close()

    def _copies(self, encoders: RegisteredEncoders, generation: int) -> Copies | None:
        """Return None if the source's group has no lake: copies are only written to a lake."""
        groups = self._settings.groups.items()
        group = next((name for name, g in groups if self.name in g.sources and g.lake is not None), None)
        if group is None:
            return None
        self._admin.ensure(topics.lake_topics(group))
        landed = LandedChunks(self.kafka, self._codec, group)
        return Copies(
            self.name, self._source, self._known_copies, landed, encoders, self._codec.headers,
            self._store.schema_text, generation,
        )  # fmt: skip

    def _read_position(self) -> Position:
        """Return the last position, with the next epoch."""
        messages, _ = read_to_end(self.kafka, topics.positions(self.name), on_wait=self._on_wait, tick=self.tick)
        incarnation = self._source.incarnation()
        values = [message.value() or b"" for message in messages]
        found = [v for v in values if self._codec.record_type(v) is TableCopies]
        self._known_copies = self._codec.decode(found[-1], TableCopies).copies if found else ()
        notes = [self._codec.decode(v, SourceNote) for v in values if self._codec.record_type(v) is SourceNote]
        self._known_notes = {note.name: note.value for note in notes if note.value}
        if not messages:
            # the topic may have been lost: the generation orders new records after everything published before
            return Position(self.name, incarnation, 1, 0, None, (), next_generation(0, now_us()))
        last = self._codec.decode(values[-1], Position)
        if last.incarnation != incarnation:
            raise IncarnationError(
                f"the position belongs to incarnation {last.incarnation}, the database is now {incarnation}",
                source=self.name,
                hint=f"it was restored or replaced: `lowwater source reset {self.name}` captures it from scratch; "
                "new changes are ordered after everything published before, and its tables are copied again",
            )
        return replace(last, epoch=last.epoch + 1)

    def _of_topic(self, position: Position) -> Position:
        """Return the position with the id of the changes topic, and its end offsets if the generation is new.

        TopicError: the topic was recreated, and the changes that this generation published to it are lost.
        """
        topic = topics.changes(self.name)
        topic_id = self._admin.topic_id(topic)
        if position.topic_id == topic_id:
            return position
        if position.topic_id:
            raise TopicError(
                f"topic {topic} was deleted and made again: changes that were not released are lost",
                source=self.name,
                hint=f"`lowwater source reset {self.name} --yes --reason …` captures it from scratch; new changes are "
                "ordered after all released ones",
            )
        ends = (topic_ends(self.kafka, topic, p, tick=self.tick)[1] for p in range(self._config.partitions))
        return replace(position, topic_id=topic_id, starts=tuple(ends))

    def _can_go_on(self, error: LowwaterError) -> bool:
        """A lost database is retried with a backoff: the next session continues from the position in Kafka."""
        if not isinstance(error, SourceLostError):
            return super()._can_go_on(error)
        until = time.monotonic() + self._backoff_seconds
        self._backoff_seconds = min(2 * self._backoff_seconds, BACKOFF_SECONDS_MAX)
        while time.monotonic() < until and not self._is_stopping:
            self.health.tick()
            time.sleep(0.1)
        return True

    def answered(self) -> None:
        """The database responds: reset the backoff."""
        self._backoff_seconds = BACKOFF_SECONDS

    def wanted(self) -> Wanted:
        return self._control.fold.get("source", self.name).control.wanted


class _Session:
    """The main loop of one session, which ends with a stop or an error."""

    def __init__(
        self, extractor: Extractor, publisher: Publisher, stream: Stream, clock: SourceClock,
        control: ControlReader, lead_bytes_max: int, copies: Copies | None, encoders: RegisteredEncoders,
    ) -> None:  # fmt: skip
        self._extractor = extractor
        self._name = extractor.name
        self._publisher = publisher
        self._stream = stream
        self._clock = clock
        self._control = control
        self._lead = LeadLimit(lead_bytes_max)
        self._copies = copies
        self._encoders = encoders
        #: `RegisteredEncoders.asked` when versions were last compared
        self._asked = -1
        self._marks: dict[int, ThreadMark] = publisher.marks
        self._stale: Mapping[str, StaleTable] = {}
        self._held: frozenset[int] = frozenset()
        self._log: Any = structlog.get_logger().bind(service="extractor", source=self._name)
        self._counted: dict[Counter, int] = {}
        self._began_at = time.monotonic()
        self._marked_at = 0.0
        self._control_at = 0.0
        self._status_at = 0.0

    def run(self, mark_seconds: float) -> bool:
        while not self._extractor.is_stopping:
            self._extractor.tick()
            wanted = self._look_at_control()
            if wanted.is_at_rest or self._extractor.is_restarted:
                self._end_batch()
                return False
            if wanted is Wanted.PAUSED:
                self._pause()
                continue
            self._extractor.health.doing("the reading of the database's log")
            polled = self._stream.poll(self._held)
            self._extractor.health.doing("the publishing of changes")
            self._register(polled)
            self._put_stale_in_front(polled)
            self._publish(polled)
            idle = not polled.transactions
            mark_due = time.monotonic() - self._marked_at >= mark_seconds
            caught_up = all(m.at_end for m in self._marks.values())
            if self._publisher.is_due(caught_up) or (mark_due and not self._publisher.has_records):
                self._end_batch()
            elif idle:
                time.sleep(IDLE_SECONDS)
            if self._copies is not None and self._copies.is_due():
                self._extractor.health.doing("the planning of copies")
                self._look_after(self._copies)
            self._show()
        self._end_batch()
        return False

    def _register(self, polled: Polled) -> None:
        """Publish a mark of each new thread before any commit of it: the merger refuses threads without a mark."""
        new = {t: m for t, m in polled.marks.items() if t not in self._marks}
        if new:
            self._publisher.note(polled.notes)
            assert not any(t.thread in new for t in polled.transactions), "a thread is registered before it is read"
            self._marks = {**self._marks, **new}
            self._commit(all_at_end=False)
            self._log.info("threads registered", threads={t: str(m.order) for t, m in new.items()})

    def _put_stale_in_front(self, polled: Polled) -> None:
        """Publish which tables are stale before the transactions of the poll: no gsn in between shows wrong rows."""
        copies = self._copies
        if copies is None:
            return
        self._compare_versions(copies, polled.marks)
        copies.announce_stale(polled.stale)
        if copies.pending_stale and polled.transactions:
            published = {thread: self._publisher.published(thread) for thread in polled.marks}
            is_new = any(t.order > published.get(t.thread, ORDER_MIN) for t in polled.transactions)
            if is_new and len(polled.marks) > 1:
                # of several threads, a lagging one may still publish transactions that are released before these
                self._announce(copies)
            if is_new and copies.pending_stale:
                polled.transactions = put_in_front(polled.transactions, copies.pending_stale.take(), published)
                self._publisher.set_copies(copies.copies.values())

    def _compare_versions(self, copies: Copies, marks: Mapping[int, ThreadMark]) -> None:
        """`marks`: the marks of the last poll, which may not be published yet."""
        seen = self._stream.seen
        # if an earlier version is in use again, it already has an encoder, and only `seen` shows it
        if self._encoders.asked != self._asked or (isinstance(seen, SeenVersions) and seen.is_changed):
            self._asked = self._encoders.asked
            copies.look_at_versions(seen, max(mark.order for mark in marks.values()))

    def _publish(self, polled: Polled) -> None:
        self._publisher.note(polled.notes)
        for thread, txid, why in polled.left_out:
            self._log.warning("transaction skipped", thread=thread, txid=txid, why=why)
            metrics.LEFT_OUT.labels(self._name).inc()
        now = now_us()
        for transaction in polled.transactions:
            size = self._publisher.add(transaction, now)
            if size:
                self._lead.published(transaction.thread, transaction.order, size)
                if self._publisher.is_full:
                    # with the marks before this poll: its own marks cover all of its transactions
                    self._commit(all_at_end=False)
                    now = now_us()
        self._marks = self._marks_to_publish(polled.marks)
        self._stale = polled.stale

    def _marks_to_publish(self, marks: Mapping[int, ThreadMark]) -> dict[int, ThreadMark]:
        """Keep the resumes before this poll while stale tables are not published yet.

        After a restart the part of the log in which they were found is then read again.
        """
        if self._copies is None or not self._copies.pending_stale:
            return dict(marks)
        before = self._marks
        return {t: m._replace(resume=before[t].resume) if t in before else m for t, m in marks.items()}

    def _look_after(self, copies: Copies) -> None:
        copies.request(self._control.fold.get("source", self._name).control.copies)
        self._compare_versions(copies, self._marks)
        marks = self._publisher.marks.values()
        mark = min(mark.order for mark in marks)
        copies.look_at_stale(self._stale, mark)
        if copies.pending_stale:
            self._announce(copies)
            if copies.pending_stale:
                # there is no free order for it yet; nothing is planned before it is published
                return
        chunks = copies.plan(mark, is_at_end=all(mark.at_end for mark in marks))
        if chunks or copies.is_changed:
            copies.is_changed = False
            self._publisher.plan_copies(chunks, copies.copies.values())
            self._end_batch()
        if not copies.is_any_whole:
            return
        copies.ask_ends(self._stream)
        self._announce(copies)

    def _announce(self, copies: Copies) -> None:
        """Publish which tables are stale and which copies are readable, as a transaction of the extractor's own."""
        if self._publisher.has_records:
            # its order is directly after the published marks: nothing may be in between
            self._end_batch()
        found = copies.announcement(self._publisher.marks, self._publisher.published, now_us())
        if found is not None:
            self._publisher.add(found, now_us())
            # its order is above the end of the log: on an idle log it would not be released before the next commit
            self._marks[found.thread] = self._marks[found.thread]._replace(order=found.order)
            self._publisher.set_copies(copies.copies.values())
            fail_point("extractor.copied_produced")
            self._end_batch()

    def _end_batch(self) -> None:
        self._commit(all_at_end=all(m.at_end for m in self._marks.values()))

    def _commit(self, all_at_end: bool) -> None:
        """Commit a batch and acknowledge it to the source.

        Health and held threads are updated here, also in the middle of a poll: a poll of a lagging source is long.
        """
        with metrics.BATCH_SECONDS.labels(self._name).time():
            self._publisher.commit(self._marks, all_at_end, now_us())
        self._marked_at = time.monotonic()
        metrics.BATCHES.labels(self._name).inc()
        if self._marks:
            # a session that is stopped before its first poll has no marks
            self._stream.acknowledge({t: m.resume for t, m in self._marks.items()})
        self._extractor.answered()
        fail_point("extractor.acknowledged")
        orders = {t: m.order for t, m in self._marks.items()}
        excluded = self._control.fold.excluded(self._name)
        self._held = self._lead.held(orders, excluded)
        self._extractor.health.ready()
        self._extractor.progressed()
        if all_at_end or time.monotonic() - self._began_at > RECOVERED_SECONDS:
            self._extractor.health.recovered()

    def _look_at_control(self) -> Wanted:
        now = time.monotonic()
        if now - self._control_at >= CONTROL_SECONDS:
            self._control_at = now
            self._control.poll()
        return self._extractor.wanted()

    def _pause(self) -> None:
        if self._publisher.has_records:
            self._end_batch()
        self._extractor.progressed()
        self._extractor.health.show(self._status("paused"))
        time.sleep(0.1)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._status_at < STATUS_SECONDS:
            return
        self._status_at = now
        self._count()
        self._extractor.health.show(self._status("running"))

    def _count(self) -> None:
        publisher = self._publisher
        for counter, value in (
            (metrics.CHANGES, publisher.changes_total),
            (metrics.TRANSACTIONS, publisher.transactions_total),
            (metrics.BYTES, publisher.bytes_total),
            (metrics.CLOCK_CUT, self._clock.cut_total),
        ):
            counter.labels(self._name).inc(value - self._counted.get(counter, 0))
            self._counted[counter] = value
        for thread, mark in self._marks.items():
            labels = (self._name, str(thread))
            metrics.MARK.labels(*labels).set(mark.order.major)
            metrics.LEAD_BYTES.labels(*labels).set(self._lead.lead_bytes(thread))
            metrics.HELD.labels(*labels).set(thread in self._held)

    def _status(self, state: str) -> dict[str, Any]:
        publisher = self._publisher
        threads = {
            str(t): {
                "mark": str(m.order),
                "published": str(publisher.published(t)),
                "state": m.state.value,
                "at_end": m.at_end,
                "held": t in self._held,
                "lead_bytes": self._lead.lead_bytes(t),
            }
            for t, m in sorted(self._marks.items())
        }
        open_ = publisher.position.in_progress
        return {
            "source": self._name,
            "state": state,
            "epoch": publisher.position.epoch,
            "clock_us": self._clock.last_us,
            "transactions": publisher.transactions_total,
            "changes": publisher.changes_total,
            "in_progress": None if open_ is None else {"txid": open_.txid, "changes": open_.changes},
            "threads": threads,
            "copies": self._copies.status() if self._copies is not None else {},
        }
