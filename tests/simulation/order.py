"""The one order that a group's topics and its operators' words have, worked out from whole topics.

This is the design's rule with nothing left to arrive: no buffers, no marks but for their clocks, no restarts. Every
run of the real core must come to the same.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random

from tests.simulation.database import Database, Transaction, write_database
from tests.simulation.extractor import Extractor
from tests.simulation.topic import Topic

from lowwater.records.positions import Order
from lowwater.records.types import Commit, Mark, WordKind


@dataclass(frozen=True, slots=True)
class PlannedWord:
    gsn: int
    kind: WordKind
    source: str
    thread: int = -1


@dataclass(slots=True)
class Group:
    """One seed: databases, their topics, what operators say and when, and what must come of it."""

    seed: int
    databases: dict[str, Database]
    topics: dict[str, Topic]
    words: list[PlannedWord]
    #: (source, thread, txid) that operators skip
    skips: set[tuple[str, int, str]]
    expected: list[Transaction]


@dataclass(slots=True)
class _Sequence:
    """What is left of one source's own sequence."""

    source: str
    left: list[tuple[Transaction, int]]
    clock_us: int
    #: where a thread that fell silent, and is not excluded, holds it
    held_at: Order | None

    def floor(self) -> tuple[int, str, bool]:
        """(clock, source, whether that is its first transaction or only a bound)"""
        first, clock_us = self.left[0]
        if self.held_at is not None and first.order > self.held_at:
            return max(self.clock_us + 1, min(clock for _, clock in self.left)), self.source, False
        return max(self.clock_us + 1, clock_us), self.source, True


def clocks_of(topic: Topic) -> dict[tuple[int, int, str], int]:
    """Each commit's clock: as first published, but above all marks before it in its partition."""
    clocks: dict[tuple[int, int, str], int] = {}
    for partition in topic.partitions:
        marked = 0
        for record in partition:
            content = record.content
            if isinstance(content, Mark):
                marked = max(marked, content.clock_us)
            elif isinstance(content, Commit):
                name = (content.generation, content.thread, content.txid)
                clocks.setdefault(name, max(content.clock_us, marked + 1))
    return clocks


def _sequence(databases: list[Database], topic: Topic) -> _Sequence:
    """Of a source that was reset: what had been published of the databases before, then all of the last one."""
    clocks = clocks_of(topic)
    *before, database = databases
    transactions = sorted(
        (t for d in databases for t in d.transactions()), key=lambda t: (t.generation, t.order, t.thread, t.txid)
    )
    last = topic.partitions[0][-1].content
    assert isinstance(last, Mark)
    silent = {t.number for t in database.threads if t.is_silent}
    held = [m.order for m in last.threads if m.thread in silent]
    names = [(t, (t.generation, t.thread, t.txid)) for t in transactions]
    left = [(t, clocks[name]) for t, name in names if name in clocks or t.generation == len(before)]
    return _Sequence(database.source, left, 0, min(held) if held else None)


class _Planner:
    """Merges the sequences, and lets operators speak at random on the way."""

    def __init__(self, rng: Random, databases: dict[str, list[Database]], topics: dict[str, Topic]) -> None:
        self.rng = rng
        self.databases = {name: found[-1] for name, found in databases.items()}
        #: of all that the source was captured from: which of them has been read by then is a matter of arrival
        self.threads = {name: sorted({t.number for d in found for t in d.threads}) for name, found in databases.items()}
        self.waiting = {name: _sequence(databases[name], topics[name]) for name in databases}
        self.joined: dict[str, _Sequence] = {}
        self.joined_at: dict[str, int] = {}
        self.out: dict[str, _Sequence] = {}
        #: of those, the ones that left the group altogether
        self.gone: set[str] = set()
        self.words: list[PlannedWord] = []
        self.expected: list[Transaction] = []
        self.clock_us = 0

    def plan(self) -> None:
        first = self.rng.randint(1, len(self.waiting))
        for name in sorted(self.waiting)[:first]:
            self.join(name)
        while True:
            self.speak()
            floors = [s.floor() for s in self.joined.values() if s.left]
            if not floors:
                if not self.call_another():
                    return
                continue
            clock_us, name, is_ready = min(floors)
            if not is_ready:
                self.exclude_silent(name)
                continue
            sequence = self.joined[name]
            self.expected.append(sequence.left.pop(0)[0])
            sequence.clock_us = clock_us
            self.clock_us = max(self.clock_us, clock_us)

    def speak(self) -> None:
        rng = self.rng
        if self.waiting and rng.random() < 0.1:
            self.join(min(self.waiting))
        for name in sorted(self.out):
            if rng.random() < 0.2:
                self.bring_back(name)
        for name, sequence in sorted(self.joined.items()):
            if sequence.held_at is not None:
                if rng.random() < 0.05:
                    self.exclude_silent(name)
            elif rng.random() < 0.02 and self._may_go_out(name):
                self.take_out(name)

    def _may_go_out(self, name: str) -> bool:
        """Only where the words have one meaning: by then its threads are known, however little has been read."""
        is_known = any(t.source == name for t in self.expected[self.joined_at[name] :])
        has_word = any(w.source == name and w.gsn > len(self.expected) for w in self.words)
        return is_known and not has_word and not any(t.is_silent for t in self.databases[name].threads)

    def call_another(self) -> bool:
        """Everybody here has said all; if somebody is away, call them."""
        if self.waiting:
            self.join(min(self.waiting))
        elif self.out:
            self.bring_back(min(self.out))
        else:
            return False
        return True

    def say(self, kind: WordKind, source: str, thread: int = -1) -> None:
        self.words.append(PlannedWord(len(self.expected) + 1, kind, source, thread))

    def join(self, name: str) -> None:
        self.say(WordKind.JOIN, name)
        self.joined[name] = self.waiting.pop(name)
        self.joined_at[name] = len(self.expected)
        self.joined[name].clock_us = self.clock_us

    def take_out(self, name: str) -> None:
        if self.rng.random() < 0.3:
            self.say(WordKind.LEAVE, name)
            self.gone.add(name)
        else:
            for thread in self.threads[name]:
                self.say(WordKind.EXCLUDE, name, thread)
        self.out[name] = self.joined.pop(name)

    def bring_back(self, name: str) -> None:
        if name in self.gone:
            self.say(WordKind.JOIN, name)
            self.gone.discard(name)
        else:
            for thread in self.threads[name]:
                self.say(WordKind.INCLUDE, name, thread)
        sequence = self.joined[name] = self.out.pop(name)
        sequence.clock_us = max(sequence.clock_us, self.clock_us)

    def exclude_silent(self, name: str) -> None:
        for thread in self.databases[name].threads:
            if thread.is_silent:
                self.say(WordKind.EXCLUDE, name, thread.number)
        self.joined[name].held_at = None


def make_group(seed: int, *, lwn_scn_is_mark: bool = False) -> Group:
    rng = Random(seed)
    databases: dict[str, list[Database]] = {}
    topics: dict[str, Topic] = {}
    for number in range(rng.choice((1, 2, 2, 3))):
        name = "abc"[number]
        topics[name] = Topic(name, rng.randint(1, 3))
        lives = rng.choice((1, 1, 1, 2, 3))
        databases[name] = [write_database(rng, name, rng.choice((3, 8, 16)), number) for number in range(lives)]
        _take_damage_from_repeated_ids(databases[name])
        extractor = Extractor(rng, databases[name][0], topics[name], lwn_scn_is_mark=lwn_scn_is_mark)
        for generation, database in enumerate(databases[name]):
            if generation:
                extractor.reset(database, generation)
            extractor.run(rng.randint(0, 12) if generation < lives - 1 else 1_000_000)
        extractor.finish()
    planner = _Planner(rng, databases, topics)
    planner.plan()
    names = Counter(
        (t.source, t.thread, t.txid) for found in databases.values() for d in found for t in d.transactions()
    )
    chosen = [t for t in planner.expected if t.damage or rng.random() < 0.02]
    skips = {(t.source, t.thread, t.txid) for t in chosen if names[t.source, t.thread, t.txid] == 1}
    return Group(seed, planner.databases, topics, planner.words, skips, planner.expected)


def _take_damage_from_repeated_ids(databases: list[Database]) -> None:
    """An operator's skip names an id; here it must have one meaning."""
    found = [t for database in databases for t in database.transactions()]
    names = Counter((t.thread, t.txid) for t in found)
    for transaction in found:
        if names[transaction.thread, transaction.txid] > 1:
            transaction.damage = ""
