"""Converts LWNs to events on captured objects, in log order. Rows are not decoded.

Begins, commits and DDL are included for all transactions in containers with captured objects: at its begin it is
unknown whether a transaction will change a captured object, and DDL on another object may create a captured one.
Only transactions that begin and end in one LWN without changing a captured object are left out.
"""

from __future__ import annotations

from datetime import UTC, tzinfo
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np

from lowwater.errors import LogCorruptError, LogUnknownError, MarkBrokenError, SourceError
from lowwater_extractor.sources.oracle.redo._native.event_list import list_events
from lowwater_extractor.sources.oracle.redo.codes import (
    ARGUMENT,
    BEGIN,
    COMMIT,
    DDL,
    FLAG_BIG_ENDIAN,
    FLAG_SYSTEM,
    HEAD,
    LOAD,
    OPERATION,
    PREPARE,
    ROLLBACK,
    ROW,
    UNDO,
)
from lowwater_extractor.sources.oracle.redo.filter_results import Captured, Found, Problem
from lowwater_extractor.sources.oracle.redo.layout import Place, Where, epoch_seconds
from lowwater_extractor.sources.oracle.redo.scan import (
    Damage,
    Ints,
    Lwns,
    Payload,
    Records,
    walk_records,
)
from lowwater_extractor.sources.oracle.redo.vector_columns import pick_vectors
from lowwater_extractor.sources.oracle.redo.vector_filter import VectorFilter
from lowwater_extractor.sources.oracle.scn import Scn

__all__ = [
    "ARGUMENT",
    "BEGIN",
    "COMMIT",
    "DDL",
    "FLAG_BIG_ENDIAN",
    "FLAG_SYSTEM",
    "HEAD",
    "LOAD",
    "OPERATION",
    "PREPARE",
    "ROLLBACK",
    "ROW",
    "UNDO",
    "Captured",
    "Event",
    "EventMaker",
    "Lwn",
]

#: SCN of the record, xid, code, place, data.
#: xid: container << 64 | usn << 48 | slt << 32 | sqn. place: bytes from the start of the LWN's payload
Event = tuple[Scn, int, int, int, bytes]

_SCN_SHIFT = np.uint64(16)
_HEAD_DTYPE = np.dtype([("value", "<u4"), ("flags", "<u2"), ("split", "<u2")])
_PEEK = 32


class Lwn(NamedTuple):
    """One LWN, or a group of them that was written as one."""

    sequence: int
    #: offset of its first block in the file
    offset: int
    #: lower bound of all records in it and after it; upper bound of its records
    scn: Scn
    upper: int
    #: epoch seconds
    time: int
    events: list[Event]
    #: offset after its last block
    end: int


class EventMaker:
    """Converts the LWNs of one thread to events."""

    def __init__(self, source: str, thread: int, captured: Captured, zone: tzinfo = UTC) -> None:
        self._source = source
        self._thread = thread
        self._zone = zone
        self._sieve = VectorFilter(captured)
        #: the last conversion: consecutive LWNs are mostly of the same second
        self._time = (-1, 0)

    def make(self, payload: Payload, lwns: Lwns, sequence: int, offset: int) -> list[Lwn]:
        """The LWNs that have events, and the last one. `offset` is that of the payload's first block in the file.

        If an LWN cannot be converted, those before it are returned; the error is raised by the next call, which begins
        with that LWN.
        """
        work = _Work(payload, lwns, sequence, offset)
        records = walk_records(payload, lwns)
        if isinstance(records, Damage):
            return self._until(work, self._damaged(work, records), records.at)
        if (records.lowest >> _SCN_SHIFT < lwns.scn).any():
            below = records.key >> _SCN_SHIFT < lwns.scn.repeat(np.diff(records.cuts))
            at = int(records.at[below].min())
            return self._until(work, self._below(work, at), at)
        picked = pick_vectors(payload, records, self._sieve.wanted)
        if isinstance(picked, Damage):
            return self._until(work, self._damaged(work, picked), picked.at)
        found = self._sieve.find(picked, records)
        if self._sieve.problems:
            problem = min(self._sieve.problems)
            return self._until(work, self._unknown(work, problem), problem.at)
        # the upper bound is the header's, unless a record is above it
        np.maximum(lwns.upper, (records.highest >> _SCN_SHIFT) + np.uint64(1), out=lwns.upper)
        return self._lwns(work, [] if found is None else self._events(work, records, found))

    def _until(self, work: _Work, error: SourceError, at: int) -> list[Lwn]:
        """The LWNs before the one with the error; raises it if that is the first."""
        good = work.lwn_at(at)
        if not good:
            raise error
        return self.make(work.payload, work.lwns.before(good), work.sequence, work.offset)

    # --- events

    def _events(self, work: _Work, records: Records, found: Found) -> list[tuple[int, list[Event]]]:
        """(LWN, its events), in order."""
        payload, lwns = work.payload, work.lwns
        place = found.place
        if not records.ordered.all():
            place = place + _moved(payload, lwns, records)[found.record]
            order = np.argsort(place)
            place, found = place[order], found.at(order)
        where = records.lwn_of(found.record)
        place = place - lwns.start[where] * payload.step
        untimed = np.flatnonzero((found.value == 0) & ((found.code == COMMIT) | (found.code == ROLLBACK)))
        for at in untimed.tolist():
            found.value[at] = self._epoch(int(lwns.time[where[at]]))
        events = list_events(
            payload.memory,
            _heads(found),
            HEAD.size,
            (records.key[found.record] >> _SCN_SHIFT).data,
            found.container.data,
            found.xid.data,
            found.code.data,
            place.data,
            found.start.data,
            found.stop.data,
        )
        cuts = [0, *(np.flatnonzero(np.diff(where)) + 1).tolist(), len(events)]
        # the compiled loop makes plain ints
        typed = cast("list[Event]", events)
        return [(int(where[a]), typed[a:b]) for a, b in pairwise(cuts) if b > a]

    def _lwns(self, work: _Work, events: list[tuple[int, list[Event]]]) -> list[Lwn]:
        lwns, size, sequence = work.lwns, work.payload.form.block_size, work.sequence
        last = len(lwns.start) - 1
        if not events or events[-1][0] != last:
            events.append((last, []))
        which = np.array([at for at, _ in events])
        offset, end = work.offset + lwns.start[which] * size, work.offset + lwns.stop[which] * size
        columns = (offset, lwns.scn[which], lwns.upper[which], lwns.time[which], end)
        return [
            Lwn(sequence, offset, scn, upper, self._epoch(time), those, end)
            for (_, those), offset, scn, upper, time, end in zip(
                events, *(column.tolist() for column in columns), strict=True
            )
        ]

    def _epoch(self, value: int) -> int:
        if self._time[0] != value:
            self._time = (value, epoch_seconds(value, self._zone))
        return self._time[1]

    # --- errors

    def _where(self, work: _Work, at: int) -> Where:
        return {"source": self._source, "thread": self._thread, "position": str(work.place_of(at))}

    def _damaged(self, work: _Work, damage: Damage) -> SourceError:
        what = f"{damage.what} ({work.peek(damage.at)})"
        hint = "the checksums are right, so the database wrote these bytes: report it with the log"
        return LogCorruptError(what, hint=hint, **self._where(work, damage.at))

    def _below(self, work: _Work, at: int) -> SourceError:
        what = f"a record below the SCN of its LWN ({work.peek(at)})"
        hint = "the order of this thread cannot be trusted: report it with the log"
        return MarkBrokenError(what, hint=hint, **self._where(work, at))

    def _unknown(self, work: _Work, problem: Problem) -> SourceError:
        what = f"{problem.what} ({work.peek(problem.at)})"
        return LogUnknownError(what, hint=problem.hint, **self._where(work, problem.at))


class _Work(NamedTuple):
    """A slice that is converted to events."""

    payload: Payload
    lwns: Lwns
    sequence: int
    offset: int

    def lwn_at(self, at: int) -> int:
        """Index of the LWN that contains this position."""
        return int(np.searchsorted(self.lwns.start, at // self.payload.step, "right")) - 1

    def place_of(self, at: int) -> Place:
        start = int(self.lwns.start[self.lwn_at(at)])
        block_size = self.payload.form.block_size
        return Place(self.sequence, self.offset + start * block_size, at - start * self.payload.step)

    def peek(self, at: int) -> str:
        return f"bytes {bytes(self.payload.view[at : at + _PEEK]).hex(' ', 4)}"


def _heads(found: Found) -> bytes:
    heads = np.zeros(len(found.record), _HEAD_DTYPE)
    heads["value"], heads["flags"], heads["split"] = found.value, found.flags, found.split
    return heads.tobytes()


def _moved(payload: Payload, lwns: Lwns, records: Records) -> Ints:
    """How far each record moves when the records of an LWN are sorted by SCN and sub-SCN.

    Places are those in the sorted payload: they increase with the events, whatever is captured.
    """
    lwn = np.repeat(np.arange(len(lwns.start)), np.diff(records.cuts))
    order = np.lexsort((records.at, records.key, lwn))
    size = payload.u32[records.at[order] >> 2].astype(np.int64) + 3 & ~3
    behind = np.cumsum(size) - size
    start = lwn[order]
    first = np.searchsorted(start, np.arange(len(lwns.start)))
    to = lwns.start[start] * payload.step + behind - behind[first[start]]
    moved = np.empty(len(order), np.int64)
    moved[order] = to - records.at[order]
    return moved
