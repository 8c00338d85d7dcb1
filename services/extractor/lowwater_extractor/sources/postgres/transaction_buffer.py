"""The changes of a transaction that is too large for memory, or is still running: kept as they came, on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.api import Frame
from lowwater_extractor.sources.postgres.relations import Relation
from lowwater_extractor.sources.postgres.wire.messages import RelationMessage
from lowwater_extractor.spill import Rows


@dataclass
class Streamed:
    """A transaction that is still running."""

    rows: Rows
    #: a shape that is not committed yet counts in here only
    shapes: list[RelationMessage] = field(default_factory=list)
    by_oid: dict[bytes, int] = field(default_factory=dict)
    #: how many changes of a subtransaction have a shape; the number, subxid << 32 | shape, stands beside each row
    counts: dict[int, int] = field(default_factory=dict)
    aborted: set[int] = field(default_factory=set)

    def add_shape(self, oid: bytes, message: RelationMessage) -> int:
        self.shapes.append(message)
        self.by_oid[oid] = len(self.shapes) - 1
        return self.by_oid[oid]


class StreamedChanges:
    """Decoded at each iteration: a large transaction is never in memory as a whole."""

    def __init__(
        self, streamed: Streamed, relations: Mapping[int, Relation], ts_us: int, place: str, tick: Callable[[], None]
    ) -> None:
        """`place`: of its commit, for errors."""
        self._streamed = streamed
        #: by the shape's number, without those that are not wanted
        self._relations = relations
        self._ts_us = ts_us
        self._place = place
        self._tick = tick

    def __iter__(self) -> Iterator[Frame]:
        aborted, relations = self._streamed.aborted, self._relations
        for rows, numbers in self._streamed.rows:
            # it may take minutes to publish: the server must hear of us meanwhile
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
    """`m`: a change from its letter on, without the subtransaction's id."""
    match m[0]:
        case 0x49:
            return relation.insert(m, 5, ts_us)
        case 0x55:
            return relation.update(m, 5, ts_us)
        case 0x44:
            return relation.delete(m, 5, ts_us)
        case _:
            return relation.truncate(ts_us)
