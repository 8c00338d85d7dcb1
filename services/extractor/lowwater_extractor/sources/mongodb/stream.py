"""The change stream of one replica set: whole transactions in the order of their cluster times.

**Marks.** A cluster time that is over is a mark: nothing that committed at or before it is still to come. The server's
own tokens are marks as well, one time earlier than they say; by them an idle source goes on.

**A lost connection**, an election, a killed server end the session, and the next begins at the position that Kafka
holds: there is one way to start. The position always lies between two cluster times, so nothing is torn by it.
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
    """What the assembler asks of the tables."""

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
        #: an image was missing since this was last taken back
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
                hint="with copy_tables: true the collection is copied again by itself; without it, turn images on "
                f"(changeStreamOptions.preAndPostImages.expireAfterSeconds: how long they are kept), then {RESET}",
            )  # fmt: skip
        self.is_image_missing = True
        self.stale.add(name, order, "the image of a changed document is missing")

    def refresh(self) -> None:
        """What a sample has grown."""
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
        #: what was in the oplog when it was last asked, and how far it was searched
        self._entry = self._begun.entry
        self._searched = self._begun.searched or self._begun.time
        self._is_empty = False
        self._figures_at = 0.0

    def _now(self) -> Resume:
        """Where capture begins: the first token that lies before all events."""
        while (first := self._cursor.first) is not None and first.events:
            # somebody was quicker: its token lies behind them
            self._cursor.close()
            self._cursor = self._open(None)
        assert first is not None
        # its own time may be still to come, all before it is not captured
        return Resume(first.token, ClusterTime(time_of(first.token) - 1), self._database)

    def _open(self, start: Resume | None) -> ChangeCursor:
        return ChangeCursor(self._client, self._source, self._config, start)

    def poll(self, held: frozenset[int]) -> Polled:
        try:
            if self._announce:
                # the position that capture begins at is durable before anything is read
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
        # the one that it began with may be of another stream
        database = self._begun.database if token == self._begun.token else self._database
        assembler = self._assembler
        return Resume(
            token, assembler.over_at, database, read_to, assembler.event_at, self._entry, ClusterTime(self._searched)
        )

    def _read(self) -> None:
        first = self._cursor.first
        if first is not None:
            # what comes with the cursor itself says nothing about what comes next
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
        """The database was dropped: its stream ends with an event that says so. One of that name may come again."""
        assembler = self._assembler
        if not assembler.is_invalidated:
            raise SourceLostError(
                "the server has closed the change stream", source=self._source, hint="it is tried again"
            )
        assembler.is_invalidated = False
        assembler.end_time()
        self._cursor.close()
        self._cursor = self._open(self._resume())

    def end_of_log(self) -> Callable[[], Order | None]:
        """What a read with a majority could see lies at or below the last entry that a majority has now."""
        self._entry = log_end(self._client, self._source)
        end = Order.mark(self._entry.time)
        return lambda: end

    def _search(self) -> None:
        """For writes that the stream does not tell of, among the entries that a majority has."""
        self._entry = log_end(self._client, self._source)
        found = writes_without_event(self._client, self._source, self._config, self._searched, self._entry.time)
        for name, at in found.items():
            if not self._config.copy_tables:
                raise LogGapError(
                    f"{name}: documents were written by applyOps, of which the change stream tells nothing",
                    position=place_of(at), hint="with copy_tables: true the collection is copied again by itself",
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
            # while they are off every update would make one more copy
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
        """The oplog lets go of what is old, whoever needs it."""

    def close(self) -> None:
        self._cursor.close()
        self._client.close()
        self._space.close()
