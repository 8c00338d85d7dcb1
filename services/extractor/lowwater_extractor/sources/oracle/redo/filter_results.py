"""Input and output of `VectorFilter`: captured objects, columns of events, and problems that stop the source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes
from lowwater_extractor.sources.oracle.redo.layout import OBJECT_MAX
from lowwater_extractor.sources.oracle.redo.scan import Ints, Words


class Captured(NamedTuple):
    """The captured tables and partitions: their (container, object id) and (container, data object id)."""

    objects: frozenset[tuple[int, int]]
    data_objects: frozenset[tuple[int, int]]
    #: rows of objects above this number are included, too: it is not known yet whether they are captured
    newest: int = OBJECT_MAX

    @classmethod
    def of(cls, objects: Iterable[tuple[int, int]], data_objects: Iterable[tuple[int, int]] | None = None) -> Captured:
        """Without data objects the objects' numbers are used: they are equal until a table is moved or truncated."""
        chosen = frozenset(objects)
        return cls(chosen, chosen if data_objects is None else frozenset(data_objects))


class Problem(NamedTuple):
    """A vector that stops the source. `at` is its position in the payload."""

    at: int
    what: str
    hint: str


class Found(NamedTuple):
    """Events as columns."""

    record: Ints
    #: position of the event's vector, and start and end of the event's bytes
    place: Ints
    start: Ints
    stop: Ints
    container: Ints
    xid: Words
    code: Ints
    value: Ints
    flags: Ints
    split: Ints

    def at(self, which: Ints) -> Found:
        return Found(*(column[which] for column in self))  # type: ignore[arg-type]  # types are kept


class Keys:
    """A set of numbers for lookups of whole columns."""

    def __init__(self, keys: Iterable[int]) -> None:
        # the last key is never looked up: with it every search ends inside of the array
        self.sorted = np.array([*sorted(set(keys)), 1 << 62], np.int64)

    def has(self, keys: Ints) -> NDArray[np.bool_]:
        return np.asarray(self.sorted[np.searchsorted(self.sorted, keys)] == keys)


class CapturedKeys(NamedTuple):
    """What the fast path looks up: captured objects, the low bits of their data objects, and containers."""

    objects: Keys
    low: Keys
    containers: Keys
    #: objects above this number may be captured, too
    newest: int
    #: by opcode: not 0 if it changes a row
    is_row: NDArray[np.uint8]


def idle_events(found: Found, lwn: Ints) -> NDArray[np.bool_]:
    """Which events belong to transactions that have a begin and an end in one LWN, and no other events.

    Transactions in several LWNs do not count: a reader can stop between LWNs, and another one start there.
    """
    order = np.argsort(found.xid)
    xid, container, code = found.xid[order], found.container[order], found.code[order]
    # each transaction is one run, unordered inside; if containers share an xid the run is split, and its events kept
    cut = np.append(True, (xid[1:] != xid[:-1]) | (container[1:] != container[:-1]))
    ends = (code == codes.COMMIT) | (code == codes.ROLLBACK)
    # begin +1, end -1; any other event adds more than all ends can subtract
    runs, lwn = np.flatnonzero(cut), lwn[order]
    balance = np.add.reduceat(np.where(code == codes.BEGIN, 1, np.where(ends, -1, len(order) + 1)), runs)
    together = np.minimum.reduceat(lwn, runs) == np.maximum.reduceat(lwn, runs)
    idle = np.empty(len(order), np.bool_)
    idle[order] = ((balance == 0) & together)[np.cumsum(cut) - 1]
    return idle
