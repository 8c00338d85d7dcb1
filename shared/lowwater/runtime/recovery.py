"""What to do next: decided from what was saved and what the destination holds, and from nothing else. Pure.

Work is done in steps. A step takes units (tables, chunks, collections) from the place that is committed to a place
`end`, in two phases: the step is saved before anything of it counts, and a unit counts once the destination holds it.
A crash leaves any of these behind, and a restart asks here:

- No step is open: go on from the committed place, as far as there is something.
- The destination holds all of it: the step is closed, its end is the committed place. Only then is the source told.
- It holds a part: the rest is done, and only up to the same end, for behind that nobody is yet. A unit that is no
  longer wanted is not waited for.
- It holds nothing: the step is given up as if it had never been, unless its end is promised elsewhere already.

A step without rows closes as any other does: otherwise a table in which nothing happens would hold the place for ever.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

#: a place in the source: compared by nobody here
P = TypeVar("P")


class Action(StrEnum):
    #: from `start` on, as far as there is something
    BEGIN = "begin"
    #: the `units` that are left, from `start` to `end`
    REPEAT = "repeat"
    #: nothing is read: `start` is the committed place now
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class Step(Generic[P]):
    end: P
    units: frozenset[str]
    #: those that nobody has yet noted as done; the destination may hold them all the same
    processing: frozenset[str]
    #: a part of it may be published under this end: it is not given up for another
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
    #: of the open step, and not wanted any more
    gone: frozenset[str] = frozenset()

    @property
    def acknowledge(self) -> P | None:
        """The source may let go of what lies up to here, and of nothing behind it."""
        return self.start


def step_of(end: P, *units: str, is_promised: bool = False) -> Step[P]:
    """One of which nothing is noted as done."""
    return Step(end, frozenset(units), frozenset(units), is_promised)


def decide(saved: Saved[P], held: Set[str], wanted: Set[str]) -> Next[P]:
    """`held`: those units of the open step that the destination holds; `wanted`: all units, as the config has them."""
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
