"""One run of the real core over a group's topics, under a seeded scheduler.

Partitions are read in any order and by any amount; what is released counts only once progress is written with it, as
one Kafka transaction would; the process is killed at any moment and starts again from the progress written last.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.simulation.memory_spool import MemorySpool
from tests.simulation.order import Group, PlannedWord
from tests.simulation.topic import CODEC, Record, classify

from lowwater.errors import ChecksumMismatchError, CountMismatchError
from lowwater.records.positions import Order
from lowwater.records.types import Progress, Skip, WordKind
from lowwater_merger.core.merger import Merger, Released
from lowwater_merger.spool import DiskSpool

#: more than any seed needs; reached only when a run no longer gets anywhere
STEPS_MAX = 20_000
KILLS_MAX = 4


class SimulationError(AssertionError):
    """What a promise says is not what a run did."""


@dataclass(frozen=True, slots=True)
class Landed:
    """One transaction as a reader of the ordered topic sees it."""

    gsn: int
    source: str
    thread: int
    txid: str
    order: Order
    generation: int
    #: None: skipped
    values: tuple[bytes, ...] | None


class Run:
    def __init__(self, group: Group, schedule: int, spool_directory: Path | None = None) -> None:
        self.group = group
        self.rng = rng = Random(group.seed * 1_000 + schedule)
        self.spool: MemorySpool | DiskSpool | None = None
        self._directory = spool_directory
        self.feed_max = rng.choice((1, 3, 10, 1_000))
        self.memory_bytes_max = rng.choice((1_000_000, 3_000, 0))
        self.plain_ids_max = rng.choice((1_000, 2))
        self.size_bytes_max = rng.choice((1_000_000, 2_500, 0))
        self.waits_for_damage = rng.random() < 0.5
        self.kills = 0
        self.stops = 0
        #: in the ordered topic, with the progress that was written together with it
        self.landed: list[Landed] = []
        self.progress: Progress | None = None
        self.deleted: dict[tuple[str, int], int] = {}
        self.told_skips: set[tuple[str, int, str]] = set()
        self._start()

    # -- the process -------------------------------------------------------------------------------------

    def _start(self) -> None:
        self.pending: list[Landed] = []
        self.read: dict[tuple[str, int], int] = {}
        if isinstance(self.spool, DiskSpool):
            self.spool.close()
        self.spool = DiskSpool(self._directory, "simulated") if self._directory else MemorySpool()
        self.merger = Merger("g", classify, self.spool)
        if self.progress is not None:
            progress = CODEC.decode(CODEC.encode(self.progress), Progress)
            if progress != self.progress:
                raise SimulationError("progress does not come back as it was written")
            self.merger = Merger.from_progress(progress, classify, self.spool)
        said = {(w.gsn, w.word, w.source, w.thread) for w in self.merger.words}
        self.words = [w for w in self.group.words if (w.gsn, w.kind.value, w.source, w.thread) not in said]
        for name in self.merger.sources:
            self._assign(name)
        self._skip_known()
        self._obey()

    def _assign(self, name: str) -> None:
        self.merger.bind(name, self.group.topics[name].name)
        for partition in range(len(self.group.topics[name].partitions)):
            self._seek(name, partition)

    def _seek(self, name: str, partition: int) -> None:
        offset = self.merger.sources[name].saved[partition].offset
        if offset < self.deleted.get((name, partition), 0):
            raise SimulationError(f"{name}/{partition}: offset {offset} was deleted")
        records = self.group.topics[name].partitions[partition]
        self.read[(name, partition)] = bisect_left(records, offset, key=Record.offset)

    def _kill(self) -> None:
        self.kills += 1
        self._start()

    # -- operators ---------------------------------------------------------------------------------------

    def _obey(self) -> None:
        """Words take effect at the gsn that they are recorded with."""
        while self.words and self.words[0].gsn == self.merger.next_gsn:
            self._say(self.words.pop(0))
            self._rewind()

    def _say(self, word: PlannedWord) -> None:
        if word.kind is WordKind.JOIN:
            self.merger.join(word.source, len(self.group.topics[word.source].partitions))
            self._assign(word.source)
            self._skip_known()
        elif word.kind is WordKind.LEAVE:
            self.merger.leave(word.source, "by plan")
            self.read = {place: read for place, read in self.read.items() if place[0] != word.source}
        elif word.kind is WordKind.EXCLUDE:
            self.merger.exclude(word.source, word.thread, "by plan")
        else:
            self.merger.include(word.source, word.thread, "by plan")

    def _skip_known(self) -> None:
        """A sound transaction is skipped by a word that was there before it; a damaged one perhaps only once found."""
        damaged = {(t.source, t.thread, t.txid) for t in self.group.expected if t.damage}
        unknown = damaged - self.told_skips if self.waits_for_damage else set()
        for skip in sorted(self.group.skips - unknown):
            self._skip(skip)

    def _skip(self, skip: tuple[str, int, str]) -> None:
        self.told_skips.add(skip)
        if skip[0] in self.merger.sources:
            self.merger.skip(Skip(*skip, "by plan"))
            self._rewind()

    def _rewind(self) -> None:
        for name in sorted(self.merger.rewound):
            for partition in range(len(self.group.topics[name].partitions)):
                self._seek(name, partition)
        self.merger.rewound.clear()

    def _mend(self) -> bool:
        """Whether a source had stopped, and its operator has found a word for it."""
        for name, state in sorted(self.merger.sources.items()):
            if state.error is None:
                continue
            if not isinstance(state.error, CountMismatchError | ChecksumMismatchError):
                raise SimulationError(f"{name} stopped: {type(state.error).__name__}: {state.error}")
            self.stops += 1
            for skip in sorted(s for s in self.group.skips if s[0] == name):
                self._skip(skip)
            if self.merger.sources[name].error is not None:
                raise SimulationError(f"{name} stopped for nothing that is wrong with it: {state.error}")
            return True
        return False

    # -- steps -------------------------------------------------------------------------------------------

    def _unread(self) -> list[tuple[str, int]]:
        paused = self.merger.pauses(self.size_bytes_max)
        partitions = self.group.topics
        return [
            (name, number)
            for (name, number), read in self.read.items()
            if (name, number) not in paused and read < len(partitions[name].partitions[number])
        ]

    def _feed(self, amount: int) -> bool:
        unread = self._unread()
        if not unread:
            return False
        name, number = self.rng.choice(unread)
        start = self.read[(name, number)]
        records = self.group.topics[name].partitions[number][start : start + amount]
        self.read[(name, number)] = start + len(records)
        self.merger.feed(records)
        self._rewind()
        self.merger.spill(self.memory_bytes_max)
        for state in self.merger.sources.values():
            state.pack_ids(self.plain_ids_max)
        return True

    def _release(self, most: int) -> bool:
        for number in range(most):
            released = self.merger.release()
            if released is None:
                return number > 0
            self.pending.append(_landed(released))
            self._obey()
        return True

    def _write_progress(self) -> None:
        positions: dict[str, dict[int, int]] = {}
        for (name, number), read in self.read.items():
            records = self.group.topics[name].partitions[number]
            offset = records[read - 1].offset() + 1 if read else 0
            positions.setdefault(name, {})[number] = offset
        self.progress = self.merger.progress(positions)
        self.landed += self.pending
        self.pending = []
        for source in self.progress.sources:
            for p in source.partitions:
                if p.offset < self.deleted.get((source.source, p.partition), 0):
                    raise SimulationError(f"{source.source}/{p.partition}: the offset went back to {p.offset}")
                self.deleted[(source.source, p.partition)] = p.offset

    def run(self) -> list[Landed]:
        for _ in range(STEPS_MAX):
            action = self.rng.random()
            if action < 0.03 and self.kills < KILLS_MAX:
                self._kill()
            elif action < 0.15:
                self._write_progress()
            elif action < 0.5:
                self._release(self.rng.choice((1, 2, 100)))
            elif not self._feed(self.rng.randint(1, self.feed_max)) and not self._release(1) and not self._mend():
                self._write_progress()
                return self.landed
        raise SimulationError(f"not done after {STEPS_MAX} steps")


def _landed(released: Released) -> Landed:
    entry = released.transaction
    values = None if entry.skip is not None else tuple(v for block in entry.buffer.blocks() for v in block)
    entry.buffer.drop()
    key = entry.key
    return Landed(released.gsn, released.source, key.thread, key.txid, key.order, key.generation, values)
