"""A database with redo threads, by seed: what was committed, and what each thread's log says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from lowwater.records.positions import Order

#: one step of the database's time, in the clock's units: small, so that clocks of two databases often meet
STEP_US = 10


@dataclass(slots=True)
class Transaction:
    source: str
    thread: int
    txid: str
    order: Order
    commit_ts_us: int
    changes: int
    #: what the extractor gets wrong about it, always in the same way: "missing", "altered" or nothing
    damage: str = ""
    #: raised when a changed config makes the extractor publish it anew with other bytes
    version: int = 0
    #: of the database that it was committed in: the same source may be captured from scratch
    generation: int = 0

    @property
    def key(self) -> str:
        return f"{self.source}/1.{self.generation}/{self.thread}/{self.txid}"


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a redo log: the header of an LWN with its SCN, or a commit."""

    at: int
    scn: int
    transaction: Transaction | None = None


@dataclass(slots=True)
class Thread:
    number: int
    #: times at which it was opened with its first SCN, or closed (None)
    turns: list[tuple[int, int | None]] = field(default_factory=list)
    log: list[Entry] = field(default_factory=list)
    #: its instance stops without a word, and an operator has to exclude it
    is_silent: bool = False

    def turn_at(self, at: int) -> tuple[int, int | None] | None:
        turns = [turn for turn in self.turns if turn[0] <= at]
        return turns[-1] if turns else None


@dataclass(slots=True)
class Database:
    source: str
    threads: list[Thread]
    #: the SCN that was current at each time
    scns: list[int]
    #: its threads are read in step, never one ahead of another: what exclusions need to have one answer
    in_step: bool

    @property
    def end(self) -> int:
        return len(self.scns) - 1

    def transactions(self) -> list[Transaction]:
        return [e.transaction for thread in self.threads for e in thread.log if e.transaction is not None]


class _Writer:
    def __init__(self, rng: Random, source: str, steps: int, generation: int) -> None:
        self.rng = rng
        self.generation = generation
        self.source = source
        self.steps = steps
        self.scn = rng.randint(1, 30)
        self.count = 0
        self.in_step = rng.random() < 0.3
        self.threads = [Thread(n + 1) for n in range(rng.randint(1, 3))]

    def write(self) -> Database:
        rng = self.rng
        first = rng.randint(1, len(self.threads))
        opens = {t.number: 0 if i < first else rng.randint(1, self.steps) for i, t in enumerate(self.threads)}
        silent_from = self.steps + 1
        if self.in_step and first > 1 and rng.random() < 0.5:
            self.threads[first - 1].is_silent = True
            silent_from = rng.randint(1, self.steps)
        scns = [self.scn]
        for at in range(self.steps + 1):
            for thread in self.threads:
                if opens[thread.number] == at:
                    self.open(thread, at)
            alive = [t for t in self.threads if t.turns and not (t.is_silent and at >= silent_from)]
            if at and alive:
                self.step(rng.choice(alive), at)
            scns[at:] = [self.scn]
        return Database(self.source, self.threads, scns, self.in_step)

    def open(self, thread: Thread, at: int) -> None:
        self.scn += 1
        thread.turns.append((at, self.scn))

    def step(self, thread: Thread, at: int) -> None:
        rng = self.rng
        if thread.turns[-1][1] is None:
            self.open(thread, at)
        elif not self.in_step and rng.random() < 0.12:
            thread.turns.append((at, None))
            return
        # not always: so commits on two threads come to have equal SCNs
        self.scn += rng.choice((0, 0, 1, 2))
        thread.log.append(Entry(at, self.scn))
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            self.scn += rng.choice((0, 0, 0, 1))
            thread.log.append(Entry(at, self.scn, self.commit(thread, at)))

    def commit(self, thread: Thread, at: int) -> Transaction:
        rng = self.rng
        self.count += 1
        same = sum(1 for e in thread.log if e.transaction is not None and e.scn == self.scn)
        lie = rng.choice((0, 0, 0, 0, 0, 0, 0, -90, 40, 100_000))
        changes = rng.choice((0, 1, 1, 2, 2, 3, 4))
        if not self.in_step and rng.random() < 0.08:
            changes = rng.randint(6, 12)
        return Transaction(
            source=self.source,
            thread=thread.number,
            txid=f"{rng.randrange(16):x}.{self.count}",
            order=Order(self.scn, same + 1),
            commit_ts_us=1_000 + at * STEP_US + lie + rng.randint(-15, 15),
            changes=changes,
            damage=rng.choice(("missing", "altered")) if changes and rng.random() < 0.01 else "",
            generation=self.generation,
        )


def write_database(rng: Random, source: str, steps: int, generation: int = 0) -> Database:
    return _Writer(rng, source, steps, generation).write()
