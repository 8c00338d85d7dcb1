"""Buffers the undecoded changes of streamed transactions, on disk once they are large."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.api import Frame
from lowwater_extractor.change_batch import IteratedChanges
from lowwater_extractor.sources.postgres.relations import Relation
from lowwater_extractor.sources.postgres.wire.messages import RelationMessage
from lowwater_extractor.spill import Rows


@dataclass
class Streamed:
    """A streamed transaction that has not committed yet."""

    rows: Rows
    #: relation messages received in this transaction: they apply to it alone until it commits
    shapes: list[RelationMessage] = field(default_factory=list)
    by_oid: dict[bytes, int] = field(default_factory=dict)
    #: changes by number = subxid << 32 | index in `shapes`; the number is stored with each row
    counts: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def add_shape(self, oid: bytes, message: RelationMessage) -> int:
        self.shapes.append(message)
        self.by_oid[oid] = len(self.shapes) - 1
        return self.by_oid[oid]


class StreamedChanges(IteratedChanges):
    """The changes of a committed streamed transaction. Each iteration decodes them in pieces, never all in memory."""

    def __init__(
        self, streamed: Streamed, relations: Mapping[int, Relation], ts_us: int, place: str, tick: Callable[[], None]
    ) -> None:
        """`place`: the end LSN of the commit, for errors."""
        self._streamed = streamed
        #: by index in `shapes`, without tables that are not captured
        self._relations = relations
        self._ts_us = ts_us
        self._place = place
        self._tick = tick

    def __iter__(self) -> Iterator[Frame]:
        aborted, relations = self._streamed.aborted, self._relations
        for rows, numbers in self._streamed.rows:
            # publishing may take minutes: send status updates before wal_sender_timeout
            self._tick()
            for row, number in zip(rows, numbers, strict=True):
                if number >> 32 not in aborted and (relation := relations.get(number & 0xFFFFFFFF)):
                    yield self._frame(relation, row)

    def _frame(self, relation: Relation, row: bytes) -> Frame:
        try:
            return _frame(relation, row, self._ts_us)
        except (CodecError, LogUnknownError) as error:
            error.position = error.position or self._place
            raise


def _frame(relation: Relation, m: bytes, ts_us: int) -> Frame:
    """`m`: a change message, starting at its type, without the subtransaction's xid."""
    match m[0]:
        case 0x49:
            return relation.insert(m, 5, ts_us)
        case 0x55:
            return relation.update(m, 5, ts_us)
        case 0x44:
            return relation.delete(m, 5, ts_us)
        case _:
            return relation.truncate(ts_us)
