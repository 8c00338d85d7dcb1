"""Assembles change events to whole transactions. No I/O, except that large transactions spill to disk.

Each entry of the oplog has a unique cluster time, and a transaction or a single write is one entry (a large transaction
is several entries, and has the time of the last one). Events of one transaction have the same time, session and
transaction number, and are adjacent. Transactions of one cluster time are numbered: the number is their place in it.

A time ends with an event of a later time; with a token of a later time; or when the server has no more events, because
it returns all events of an entry before it reads the next one. Until then the time is not marked and its events do not
count as read: a restarted stream begins before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

from lowwater.errors import LogCorruptError, LogUnknownError, LowwaterError, MarkBrokenError
from lowwater.records.positions import Order
from lowwater_extractor.api import Frame, SourceTransaction
from lowwater_extractor.sources.mongodb.position import NO_TIME, ClusterTime, time_of
from lowwater_extractor.sources.mongodb.relations import Table
from lowwater_extractor.sources.mongodb.wire import events as ev
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb
from lowwater_extractor.sources.mongodb.wire.events import Event
from lowwater_extractor.spill import SpillSpace
from lowwater_extractor.transaction_buffer import TransactionBuffer

THREAD = 1

#: kinds of events that change no captured document
_PASSED_OVER = {b"createIndexes", b"dropIndexes", b"modify", b"dropDatabase"}


def place_of(time: int) -> str:
    """Format a timestamp as the server's tools do."""
    return f"{time >> 32}.{time & 0xFFFFFFFF}"


class Captured(Protocol):
    """The tables that are captured, by `database.collection`."""

    def find(self, name: str) -> Table | None: ...

    def drop(self, name: str) -> None:
        """The collection was dropped."""
        ...

    def replace(self, name: str, order: Order, reason: str) -> None:
        """The collection has other documents now, without an event for each."""
        ...

    def miss(self, name: str, order: Order) -> None:
        """The stored image of a changed document is missing."""
        ...

    @property
    def has_before(self) -> bool:
        """Whether events are read with the document before the change."""
        ...


class Assembler:
    """Takes events in order; whole transactions are in `committed`, from which the caller removes them."""

    def __init__(self, source: str, captured: Captured, space: SpillSpace, bytes_max: int) -> None:
        self._source = source
        self._captured = captured
        self._space = space
        self._bytes_max = bytes_max
        self._tables: dict[bytes, Table | None] = {}
        #: the current time, the place in it, and the events of the transaction there
        self._time = ClusterTime(0)
        self._place = 0
        self._transaction = b""
        self._ts_us = 0
        self._buffer = self._new_buffer()
        self._last: Event | None = None
        #: time of the last event, in this session or before it
        self.event_at = ClusterTime(0)
        self.committed: list[SourceTransaction] = []
        #: all times up to and including this one have ended
        self.over_at = ClusterTime(0)
        self._over: Event | str = ""
        #: the last event ended the stream
        self.is_invalidated = False

    def begin(self, token: str, over_at: ClusterTime, event_at: ClusterTime = NO_TIME) -> None:
        self.over_at, self._over, self.event_at = over_at, token, event_at

    @property
    def over_token(self) -> str:
        """The token after all events up to and including `over_at`, and before all later ones."""
        # decoded here, because most tokens are never needed
        return self._over if isinstance(self._over, str) else self._token_of(self._over)

    @property
    def read_to(self) -> str:
        """The token of the last event of a time that has not ended; empty: there is none."""
        return self._token_of(self._last) if self._last is not None and self.is_inside else ""

    def _token_of(self, event: Event) -> str:
        with self._named():
            return event.token

    @property
    def is_inside(self) -> bool:
        """Whether events of a time that has not ended were read."""
        return self._time > self.over_at

    # -- end of a time -----------------------------------------------------------------------------------

    def end_batch(self, token: str, *, is_empty: bool) -> None:
        """Process the token of a batch. `is_empty`: the server was asked for more and returned no events."""
        with self._named():
            if is_empty and self.is_inside:
                self.end_time()
            time = time_of(token)
            if time > self._time and time > self.over_at:
                self.end_time()
                # events of exactly this time may still follow
                self.over_at, self._over = ClusterTime(max(self.over_at, time - 1)), token

    def end_time(self) -> None:
        self._end_transaction()
        if self.is_inside:
            assert self._last is not None
            self.over_at, self._over = self._time, self._last

    def _end_transaction(self) -> None:
        buffer = self._buffer
        size, count = buffer.bytes, buffer.count
        if not count:
            return
        txid = ev.transaction_name(self._transaction) if self._transaction else f"{self._time}-{self._place}"
        order = Order(self._time, self._place)
        self.committed.append(SourceTransaction(THREAD, txid, order, self._ts_us, buffer.changes(), size, count))
        self._buffer = self._new_buffer()

    # -- events ------------------------------------------------------------------------------------------

    def feed(self, found: Iterable[bytes]) -> None:
        data = b""
        with self._named():
            try:
                for data in found:
                    self._feed(ev.read_event(data))
            except rb.DAMAGE as error:
                # the first bytes are the token and the kind: the message does not contain the document
                what = f"an event that is truncated or malformed: {data[:48].hex(' ')}"
                hint = "restart the source; if the error recurs, report it"
                raise LogCorruptError(what, hint=hint) from error

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Add source, thread and position to errors."""
        try:
            yield
        except LowwaterError as error:
            error.source, error.thread = error.source or self._source, THREAD
            error.position = error.position or place_of(max(self._time, self.over_at))
            raise

    def _feed(self, event: Event) -> None:
        time, transaction = event.time, event.transaction
        if b"fromMigrate" in event.places:
            raise LogUnknownError(
                f"{ev.full_name(event.namespace)}: a document that the balancer has moved (fromMigrate)",
                position=place_of(time),
                hint="a shard cannot be captured, see docs/mongodb.md; once it is no longer a shard, reset the source",
            )
        if time <= self.over_at or time < self._time:
            raise MarkBrokenError(
                "an event of a cluster time that had ended",
                position=place_of(time),
                hint="the change stream broke its own order; do not resume the source, report it with the server's log",
            )
        if time > self._time:
            self.end_time()
            self._time, self._place, self._transaction = time, 1, transaction
        elif not transaction or transaction != self._transaction:
            self._end_transaction()
            self._place, self._transaction = self._place + 1, transaction
        self._ts_us = event.ts_us
        self._change(event)
        self._last, self.event_at = event, time

    def _change(self, event: Event) -> None:
        kind, data, ts_us = event.kind, event.data, event.ts_us
        if kind == b"insert":
            table = self._table(event)
            if table is not None:
                self._add(table.insert(data, self._document(event, b"fullDocument"), ts_us))
        elif kind in (b"update", b"replace"):
            table = self._table(event)
            if table is not None:
                self._update(table, event)
        elif kind == b"delete":
            table = self._table(event)
            if table is not None:
                before = self._before(table, event)
                self._add(table.delete(data, before or self._document(event, b"documentKey"), ts_us))
        else:
            self._change_collection(event)

    def _update(self, table: Table, event: Event) -> None:
        before, after = self._before(table, event), event.document(b"fullDocument")
        if after is None:
            # the new document is not in the log: the collection is copied again
            self._captured.miss(table.name, Order(self._time, self._place))
            return
        if before is None:
            before = table.moved_from(event.data, self._document(event, b"documentKey"), after)
        self._add(table.update(event.data, before, after, event.ts_us))

    def _before(self, table: Table, event: Event) -> int | None:
        """Return the document before the change; None: it is not configured, or is missing.

        If it is missing, the key is used instead, and the collection is copied again.
        """
        found = event.document(b"fullDocumentBeforeChange")
        if found is None and self._captured.has_before:
            self._captured.miss(table.name, Order(self._time, self._place))
        return found

    def _change_collection(self, event: Event) -> None:
        kind = event.kind
        if kind == b"drop":
            self._emptied(ev.full_name(event.namespace), event.ts_us)
        elif kind == b"rename":
            self._emptied(ev.full_name(event.namespace), event.ts_us)
            name = ev.full_name(event.data, event.places[b"to"])
            if self._captured.find(name) is not None:
                self._emptied(name, event.ts_us)
                old = ev.full_name(event.namespace)
                self._captured.replace(name, Order(self._time, self._place), f"{old} was renamed to it")
        elif kind == b"create":
            table = self._captured.find(ev.full_name(event.namespace))
            if table is not None:
                table.created()
        elif kind == b"invalidate":
            self.is_invalidated = True
        elif kind not in _PASSED_OVER:
            raise LogUnknownError(
                f"an event of an unknown kind: {kind.decode()}",
                hint="is the server newer than lowwater, or a sharded cluster? see docs/mongodb.md",
            )

    def _emptied(self, name: str, ts_us: int) -> None:
        """All documents of the collection are gone, without a delete event for each."""
        table = self._captured.find(name)
        if table is None:
            return
        if table.is_known:
            self._add(table.truncate(ts_us))
        self._captured.drop(name)

    def _table(self, event: Event) -> Table | None:
        try:
            return self._tables[event.namespace]
        except KeyError:
            found = self._tables[event.namespace] = self._captured.find(ev.full_name(event.namespace))
            return found

    def _document(self, event: Event, name: bytes) -> int:
        at = event.document(name)
        if at is None:
            raise LogCorruptError(
                f"{ev.full_name(event.namespace)}: an event of kind {event.kind.decode()} without {name.decode()}",
                hint="is changeStreamPreAndPostImages on? run `lowwater source check`",
            )
        return at

    def _add(self, frame: Frame) -> None:
        self._buffer.add(frame)

    def _new_buffer(self) -> TransactionBuffer[list[Frame]]:
        return TransactionBuffer(self._space, self._bytes_max, [])
