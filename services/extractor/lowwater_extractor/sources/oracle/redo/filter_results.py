"""What the sieve is given and what it gives: captured objects, events side by side, what stops the source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lowwater_extractor.sources.oracle.redo import codes
from lowwater_extractor.sources.oracle.redo.layout import OBJECT_MAX
from lowwater_extractor.sources.oracle.redo.scan import Ints, Words


class Captured(NamedTuple):
    """What is captured: (container, object id) of tables and partitions, and (container, data object id) of both."""

    objects: frozenset[tuple[int, int]]
    data_objects: frozenset[tuple[int, int]]
    #: rows of objects above this number are taken, too: nobody knows yet who they are
    newest: int = OBJECT_MAX

    @classmethod
    def of(cls, objects: Iterable[tuple[int, int]], data_objects: Iterable[tuple[int, int]] | None = None) -> Captured:
        """Without data objects: they have the objects' numbers, as long as a table was never moved or truncated."""
        chosen = frozenset(objects)
        return cls(chosen, chosen if data_objects is None else frozenset(data_objects))


class Problem(NamedTuple):
    """A vector that stops the source. `at` is its position in the payload."""

    at: int
    what: str
    hint: str


class Found(NamedTuple):
    """Events side by side."""

    record: Ints
    #: the vector that the event stands at, and the bytes that it carries
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
        return Found(*(column[which] for column in self))  # type: ignore[arg-type]  # each keeps its own type


class Keys:
    """A set of numbers that many are looked up in at once."""

    def __init__(self, keys: Iterable[int]) -> None:
        # the last one is never looked for: it makes every search end inside
        self.sorted = np.array([*sorted(set(keys)), 1 << 62], np.int64)

    def has(self, keys: Ints) -> NDArray[np.bool_]:
        return np.asarray(self.sorted[np.searchsorted(self.sorted, keys)] == keys)


def idle_events(found: Found, lwn: Ints) -> NDArray[np.bool_]:
    """Which events are of transactions of which there is a begin and an end in one LWN, and nothing else.

    Not of those in several LWNs: between these a reader can stop, and another begin there.
    """
    order = np.argsort(found.xid)
    xid, container, code = found.xid[order], found.container[order], found.code[order]
    # each transaction is one run, in any order inside; containers that share an xid cut it, and keep it
    cut = np.append(True, (xid[1:] != xid[:-1]) | (container[1:] != container[:-1]))
    ends = (code == codes.COMMIT) | (code == codes.ROLLBACK)
    # one up, one down; anything else cannot be made up for
    runs, lwn = np.flatnonzero(cut), lwn[order]
    balance = np.add.reduceat(np.where(code == codes.BEGIN, 1, np.where(ends, -1, len(order) + 1)), runs)
    together = np.minimum.reduceat(lwn, runs) == np.maximum.reduceat(lwn, runs)
    idle = np.empty(len(order), np.bool_)
    idle[order] = ((balance == 0) & together)[np.cumsum(cut) - 1]
    return idle
