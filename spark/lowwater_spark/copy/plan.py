"""Which chunks are to be copied, and which copies are to be closed. Pure: the chunks topic and the chain decide.

A copy is of one table. It is whole when all its chunks have landed, readable when its `Copied` has, replaced when a
later copy says so. What is replaced before it was whole can never become readable, so its files go. One that is whole
may have its `Copied` on the way, and then its files answer for the time until the next copy is readable: it is let
alone until that is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lowwater.lake.chain.manifest import CopiedTables
from lowwater.records.types import Chunk


class Ledger(Protocol):
    """What is asked of the chain."""

    @property
    def copied(self) -> list[CopiedTables]: ...

    @property
    def closed_copies(self) -> set[str]: ...

    @property
    def landed_chunks(self) -> set[tuple[str, int]]: ...


@dataclass
class CopyPlan:
    """One copy, as far as the topic has told of it."""

    source: str
    #: `namespace.table`
    table: str
    copy: str
    chunks: int
    #: its chunks that have not landed, by number
    waiting: dict[int, Chunk] = field(default_factory=dict)

    @property
    def lake_table(self) -> str:
        return f"{self.source}.{self.table}"

    @property
    def done(self) -> int:
        return self.chunks - len(self.waiting)

    @property
    def rows_left(self) -> int:
        return sum(chunk.rows_estimate for chunk in self.waiting.values())


class CopyPlans:
    """All copies of a group's sources, in the order of their topics."""

    def __init__(self) -> None:
        self._plans: dict[str, CopyPlan] = {}
        #: copy → the one that takes its place
        self._replaced: dict[str, str] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """A record that comes twice changes nothing."""
        for chunk in chunks:
            plan = self._plans.get(chunk.copy)
            if plan is None:
                plan = self._plans[chunk.copy] = CopyPlan(chunk.source, chunk.table, chunk.copy, chunk.chunks)
            # a copy of no chunks is only there to replace one whose table is gone
            if chunk.chunks:
                plan.waiting[chunk.chunk] = chunk
            if chunk.replaces:
                self._replaced[chunk.replaces] = chunk.copy

    def settle(self, ledger: Ledger) -> None:
        """Forgets what has landed, and the copies about which nothing is left to decide: there may be many chunks."""
        readable = {copied.copy_id for copied in ledger.copied}
        for plan in list(self._plans.values()):
            if plan.copy in ledger.closed_copies or plan.copy in readable:
                del self._plans[plan.copy]
                continue
            for number in [n for n in plan.waiting if (plan.copy, n) in ledger.landed_chunks]:
                del plan.waiting[number]

    @property
    def is_settled(self) -> bool:
        """Nothing that lands now can make a difference."""
        return not any(plan.waiting or plan.copy in self._replaced for plan in self._plans.values())

    def active(self) -> Iterator[CopyPlan]:
        """Copies that have chunks left to copy; `settle` comes first."""
        return (p for p in self._plans.values() if p.waiting and p.copy not in self._replaced)

    def pending(self, held: Collection[str] = ()) -> Iterator[Chunk]:
        """`held`: names of sources and ids of copies that are let alone for now."""
        for plan in self.active():
            if plan.source not in held and plan.copy not in held:
                yield from plan.waiting.values()

    def closings(self, ledger: Ledger) -> list[CopyPlan]:
        """Copies of which nothing is to land any more, and nothing is to be read; `settle` comes first."""
        readable = {copied.copy_id for copied in ledger.copied}
        found = []
        for copy, by in self._replaced.items():
            plan = self._plans.get(copy)
            if plan is None:
                continue
            # a source's records keep their order: its own Copied would have come before that of the later copy
            if plan.waiting or self._is_any_readable(by, readable):
                found.append(plan)
        return found

    def _is_any_readable(self, copy: str, readable: set[str]) -> bool:
        """This copy, or one that has taken its place."""
        seen: set[str] = set()
        while copy not in seen:
            if copy in readable:
                return True
            seen.add(copy)
            copy = self._replaced.get(copy, copy)
        return False
