"""Decides what to do after a restart, from the saved state and the content of the destination only. Pure.

Work is done in steps. A step moves units (tables, chunks, collections) from the committed position to a position
`end`, in two phases: first the step is saved, then its units are written; a unit is done once the destination holds
it. After a crash the saved step is in one of these states:

- No step is open: continue from the committed position to the end of the available data.
- The destination holds all units: the step is closed, and its end becomes the committed position. Only then is the
  source acknowledged.
- It holds some units: the others are repeated, up to the same end, because no unit has been read beyond it. Units
  that are no longer configured are skipped.
- It holds no unit: the step is discarded, unless its end has been published already (`is_promised`).

A step without rows is closed in the same way: otherwise an idle table would hold back the position.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

#: a position in the source; not compared here
P = TypeVar("P")


class Action(StrEnum):
    #: read from `start` to the end of the available data
    BEGIN = "begin"
    #: read the remaining `units` from `start` to `end`
    REPEAT = "repeat"
    #: read nothing: `start` becomes the committed position
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Step(Generic[P]):
    end: P
    units: frozenset[str]
    #: units not yet saved as done; the destination may hold them nevertheless
    processing: frozenset[str]
    #: a part of it may be published with this end: the step is repeated, never discarded
    is_promised: bool = False


@dataclass(frozen=True, slots=True)
class Saved(Generic[P]):
    #: None: nothing was committed yet
    committed: P | None
    step: Step[P] | None = None


@dataclass(frozen=True, slots=True)
class Next(Generic[P]):
    action: Action
    start: P | None
    end: P | None
    units: frozenset[str]
    #: units of the open step that are no longer configured
    gone: frozenset[str] = frozenset()

    @property
    def acknowledge(self) -> P | None:
        """The source may delete its log up to this position, and nothing after it."""
        return self.start


def step_of(end: P, *units: str, is_promised: bool = False) -> Step[P]:
    """A step of which no unit is done."""
    return Step(end, frozenset(units), frozenset(units), is_promised)


def decide(saved: Saved[P], held: Set[str], wanted: Set[str]) -> Next[P]:
    """`held`: units of the open step that the destination holds; `wanted`: all configured units."""
    step, all_ = saved.step, frozenset(wanted)
    if step is None:
        return Next(Action.BEGIN, saved.committed, None, all_)
    gone = step.units - all_
    left = step.processing - held - gone
    if not left:
        return Next(Action.CLOSE, step.end, None, all_, gone)
    is_untouched = left == step.units - gone
    if is_untouched and not step.is_promised:
        return Next(Action.BEGIN, saved.committed, None, all_, gone)
    return Next(Action.REPEAT, saved.committed, step.end, left, gone)
