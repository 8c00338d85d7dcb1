"""Which chunks are to be copied, and which copies are to be closed, by the chunks topic and the chain. Pure.

A copy is of one table. It is complete when all its chunks have landed, readable when its `Copied` record has landed,
and replaced when a later copy names it. A copy that is replaced before it is complete can never become readable, so its
files are removed. The `Copied` record of a complete one may still arrive; its files are then needed until the next copy
is readable, so it is retained until that is known.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from lowwater.lake.chain.manifest import CopiedTables
from lowwater.records.types import Chunk


class Ledger(Protocol):
    """The part of the chain that plans need."""

    @property
    def copied(self) -> list[CopiedTables]: ...

    @property
    def closed_copies(self) -> set[str]: ...

    @property
    def landed_chunks(self) -> set[tuple[str, int]]: ...


@dataclass
class CopyPlan:
    """One copy, as far as the chunks topic has been read."""

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
        #: copy → the copy that replaces it
        self._replaced: dict[str, str] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Adds chunks; repeated records have no effect."""
        for chunk in chunks:
            plan = self._plans.get(chunk.copy)
            if plan is None:
                plan = self._plans[chunk.copy] = CopyPlan(chunk.source, chunk.table, chunk.copy, chunk.chunks)
            # a copy without chunks only replaces a copy of a table that was dropped
            if chunk.chunks:
                plan.waiting[chunk.chunk] = chunk
            if chunk.replaces:
                self._replaced[chunk.replaces] = chunk.copy

    def settle(self, ledger: Ledger) -> None:
        """Removes landed chunks, and copies that are closed or readable, to save memory."""
        readable = {copied.copy_id for copied in ledger.copied}
        for plan in list(self._plans.values()):
            if plan.copy in ledger.closed_copies or plan.copy in readable:
                del self._plans[plan.copy]
                continue
            for number in [n for n in plan.waiting if (plan.copy, n) in ledger.landed_chunks]:
                del plan.waiting[number]

    @property
    def is_settled(self) -> bool:
        """True if no chunk is left to copy and no copy to close."""
        return not any(plan.waiting or plan.copy in self._replaced for plan in self._plans.values())

    def active(self) -> Iterator[CopyPlan]:
        """Copies that have chunks left to copy; call `settle` first."""
        return (p for p in self._plans.values() if p.waiting and p.copy not in self._replaced)

    def pending(self, held: Collection[str] = ()) -> Iterator[Chunk]:
        """Chunks to copy, without those of the sources and copies in `held`."""
        for plan in self.active():
            if plan.source not in held and plan.copy not in held:
                yield from plan.waiting.values()

    def closings(self, ledger: Ledger) -> list[CopyPlan]:
        """Copies to close: no chunk of them may land or is read any more. Call `settle` first."""
        readable = {copied.copy_id for copied in ledger.copied}
        found = []
        for copy, by in self._replaced.items():
            plan = self._plans.get(copy)
            if plan is None:
                continue
            # records of a source are in order: its own Copied would have preceded that of the later copy
            if plan.waiting or self._is_any_readable(by, readable):
                found.append(plan)
        return found

    def _is_any_readable(self, copy: str, readable: set[str]) -> bool:
        """Whether this copy, or one that replaced it, is readable."""
        seen: set[str] = set()
        while copy not in seen:
            if copy in readable:
                return True
            seen.add(copy)
            copy = self._replaced.get(copy, copy)
        return False
