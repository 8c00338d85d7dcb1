"""The change stream of one replica set: whole transactions in the order of their cluster times.

**Marks.** A cluster time that has ended is a mark: no later event has that time or an earlier one. The server's resume
tokens are marks too, for the time before their own; they advance an idle source.

**A lost connection**, an election or a killed server ends the session, and the next one starts from the position in
Kafka: there is no other way to reconnect. The position is always between two cluster times, so no transaction is split.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import structlog

from lowwater.codec.table import TableSchema
from lowwater.errors import LogGapError, LowwaterError, SourceLostError
from lowwater.records.positions import Order
from lowwater_extractor.api import Encoders, Polled, SeenVersions, ThreadMark, ThreadState
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.mongodb import metrics
from lowwater_extractor.sources.mongodb.assembler import THREAD, Assembler, place_of
from lowwater_extractor.sources.mongodb.catalogue import (
    enable_images,
    log_end,
    oplog_range,
    refuse_shard,
    refuse_without_images,
)
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import RESET, Client
from lowwater_extractor.sources.mongodb.position import ClusterTime, Resume, time_of
from lowwater_extractor.sources.mongodb.relations import Shapes, Table
from lowwater_extractor.sources.mongodb.wire.change_cursor import ChangeCursor, database_of
from lowwater_extractor.sources.mongodb.wire.oplog import writes_without_event
from lowwater_extractor.spill import SpillSpace

FIGURES_SECONDS = 10.0

_log = structlog.get_logger()


class CapturedTables:
    """The captured tables, for the assembler."""

    def __init__(
        self, config: MongoConfig, source: str, shapes: Shapes, encoders: Encoders, seen: dict[str, TableSchema]
    ) -> None:
        self._config = config
        self._source = source
        self._shapes = shapes
        self._encoders = encoders
        self._seen = seen
        self._tables: dict[str, Table] = {}
        self._refreshed_at = shapes.changes
        shapes.load(encoders.notes)
        self.stale = StaleTables(source, encoders.notes)
        self.has_before = config.before == "row"
        #: an image was missing since this was last reset
        self.is_image_missing = False

    def find(self, name: str) -> Table | None:
        found = self._tables.get(name)
        if found is None and self._config.is_wanted(name):
            found = Table(name, self._source, self._config, self._shapes, self._encoders, self._seen)
            self._tables[name] = found
        return found

    def drop(self, name: str) -> None:
        self._shapes.forget(name)
        self._tables[name].refresh()

    def replace(self, name: str, order: Order, reason: str) -> None:
        if self._config.copy_tables:
            self.stale.add(name, order, reason)

    def miss(self, name: str, order: Order) -> None:
        if not self._config.copy_tables:
            raise LogGapError(
                f"{name}: the image of a changed document is missing: changeStreamPreAndPostImages was off, or images "
                "expire too soon",
                hint="with copy_tables: true the collection is copied again automatically; otherwise turn images on "
                f"(changeStreamOptions.preAndPostImages.expireAfterSeconds: their retention), then {RESET}",
            )  # fmt: skip
        self.is_image_missing = True
        self.stale.add(name, order, "the image of a changed document is missing")

    def refresh(self) -> None:
        """Apply columns that were added by a sample."""
        if self._refreshed_at != self._shapes.changes:
            for table in self._tables.values():
                table.refresh()
            self._refreshed_at = self._shapes.changes

    def notes(self) -> dict[str, bytes]:
        return {**self._shapes.notes(), **self.stale.notes()}


class MongoStream:
    def __init__(
        self, config: MongoConfig, source: str, client: Client, shapes: Shapes, encoders: Encoders,
        resume: Resume | None,
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._client = client
        self._announce = resume is None
        self._space = SpillSpace(config.spill_directory)
        self.seen: dict[str, TableSchema] = SeenVersions()
        self._tables = CapturedTables(config, source, shapes, encoders, self.seen)
        self._assembler = Assembler(source, self._tables, self._space, config.spill_bytes_max)
        if resume is not None and resume.next_token:
            _log.info("read again", source=source, after=resume.token, to=resume.next_token)
        self._database = database_of(config) or ""
        self._cursor = self._open(resume)
        self._begun = resume or self._now()
        self._assembler.begin(self._begun.token, self._begun.time, self._begun.event)
        #: the last entry of the oplog when it was last queried, and the time up to which it was searched
        self._entry = self._begun.entry
        self._searched = self._begun.searched or self._begun.time
        self._is_empty = False
        self._figures_at = 0.0

    def _now(self) -> Resume:
        """Return the position at which capture begins: the first token before all events."""
        while (first := self._cursor.first) is not None and first.events:
            # an event arrived before the stream was open: the token is after it
            self._cursor.close()
            self._cursor = self._open(None)
        assert first is not None
        # events of the token's own time may still follow; earlier ones are not captured
        return Resume(first.token, ClusterTime(time_of(first.token) - 1), self._database)

    def _open(self, start: Resume | None) -> ChangeCursor:
        return ChangeCursor(self._client, self._source, self._config, start)

    def poll(self, held: frozenset[int]) -> Polled:
        try:
            if self._announce:
                # the position at which capture begins must be durable before anything is read
                self._announce = False
            elif THREAD not in held:
                self._read()
            self._look_after()
            return self._polled()
        except LowwaterError as error:
            error.source, error.thread = error.source or self._source, THREAD
            error.position = error.position or place_of(self._assembler.over_at)
            raise

    def _polled(self) -> Polled:
        assembler = self._assembler
        found, assembler.committed = assembler.committed, []
        resume = self._resume(assembler.read_to).pack()
        at_end = self._is_empty and not assembler.is_inside
        mark = ThreadMark(THREAD, Order.mark(assembler.over_at), resume, ThreadState.OPEN, at_end)
        return Polled(found, {THREAD: mark}, notes=self._tables.notes(), stale=self._tables.stale.found)

    def _resume(self, read_to: str = "") -> Resume:
        token = self._assembler.over_token
        # the token with which the session began may be of another database's stream
        database = self._begun.database if token == self._begun.token else self._database
        assembler = self._assembler
        return Resume(
            token, assembler.over_at, database, read_to, assembler.event_at, self._entry, ClusterTime(self._searched)
        )

    def _read(self) -> None:
        first = self._cursor.first
        if first is not None:
            # the first batch does not show whether the stream is at its end
            self._cursor.first = None
            self._take(first.events, first.token, is_empty=False)
            if first.events:
                return
        wait = self._config.await_milliseconds if self._is_empty else 1
        reply = self._cursor.more(wait)
        self._is_empty = not reply.events
        self._take(reply.events, reply.token, is_empty=self._is_empty)

    def _take(self, events: list[bytes], token: str, *, is_empty: bool) -> None:
        assembler = self._assembler
        self._tables.refresh()
        assembler.feed(events)
        if self._cursor.is_closed:
            self._begin_again()
        else:
            assembler.end_batch(token, is_empty=is_empty)

    def _begin_again(self) -> None:
        """Open the stream again after an invalidate event: the database was dropped, and may be created again.

        SourceLostError: the server closed the stream without that event.
        """
        assembler = self._assembler
        if not assembler.is_invalidated:
            raise SourceLostError(
                "the server has closed the change stream", source=self._source, hint="retried automatically"
            )
        assembler.is_invalidated = False
        assembler.end_time()
        self._cursor.close()
        self._cursor = self._open(self._resume())

    def end_of_log(self) -> Callable[[], Order | None]:
        """As `WindowStream.end_of_log`: the last majority-committed entry, which covers all majority reads."""
        self._entry = log_end(self._client, self._source)
        end = Order.mark(self._entry.time)
        return lambda: end

    def _search(self) -> None:
        """Search the majority-committed entries for writes that the change stream does not contain."""
        self._entry = log_end(self._client, self._source)
        found = writes_without_event(self._client, self._source, self._config, self._searched, self._entry.time)
        for name, at in found.items():
            if not self._config.copy_tables:
                raise LogGapError(
                    f"{name}: documents were written by applyOps, which the change stream does not contain",
                    position=place_of(at), hint="with copy_tables: true the collection is copied again automatically",
                )  # fmt: skip
            self._tables.replace(name, Order.mark(at), "documents were written by applyOps")
        self._searched = max(self._searched, self._entry.time)

    def _look_after(self) -> None:
        now = time.monotonic()
        if now - self._figures_at < FIGURES_SECONDS and not self._tables.is_image_missing:
            return
        self._figures_at = now
        if self._config.manage_images:
            enable_images(self._client, self._config, self._source)
        elif self._tables.is_image_missing:
            # while images are off, every update would cause another copy
            refuse_without_images(self._client, self._config, self._source)
        self._tables.is_image_missing = False
        refuse_shard(self._client, self._source)
        self._search()
        first, last = (at >> 32 for at in oplog_range(self._client, self._source))
        behind = max(0, last - (self._assembler.over_at >> 32))
        metrics.OPLOG_SECONDS.labels(self._source).set(last - first)
        metrics.BEHIND_SECONDS.labels(self._source).set(behind)
        metrics.OPLOG_ALARM.labels(self._source).set(behind > self._config.oplog_share_alarm * max(60, last - first))

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """Nothing to do: the server truncates the oplog without regard to readers."""

    def close(self) -> None:
        self._cursor.close()
        self._client.close()
        self._space.close()
