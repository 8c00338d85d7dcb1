"""A group whose topics are written record by record, and read when a test says so."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import TypeVar

from tests.simulation.topic import CODEC, Record, Topic, change_value, checksum, classify

from lowwater.errors import MergeError
from lowwater.records.positions import Order
from lowwater.records.types import Abandon, Commit, Mark, MarkedThread, Progress
from lowwater_merger.core.merger import Merger, Released, Spool
from lowwater_merger.core.release import SourceState

Error = TypeVar("Error", bound=MergeError)


class ByHand:
    """SCNs are whole numbers here: a commit at 5 has the order 5.1, a mark at 5 covers all of 5."""

    def __init__(self, *sources: str, partitions: int = 1, spool: Spool | None = None) -> None:
        self.spool = spool
        self.topics: dict[str, Topic] = {}
        self.merger = Merger("g", classify, spool)
        self.read_to: dict[tuple[str, int], int] = {}
        self.progress: Progress | None = None
        #: of what is written from now on
        self.generation = 0
        for name in sources or ("a",):
            self.join(name, partitions)

    def join(self, source: str, partitions: int = 1, topic_id: str = "", generation: int = 0) -> None:
        self.topics.setdefault(source, Topic(source, partitions))
        self.merger.join(source, partitions, topic_id, generation=generation)
        self._assign(source)

    # -- writing -----------------------------------------------------------------------------------------

    def mark(
        self, threads: Mapping[int, int], clock: int = 0, *, source: str = "a", epoch: int = 1,
        partition: int | None = None, closed: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """To every partition, or to the one that is named."""
        marked = (MarkedThread(t, Order.mark(scn), "closed" if t in closed else "open") for t, scn in threads.items())
        mark = Mark(epoch, clock, tuple(marked), self.generation)
        topic = self.topics[source]
        for number in range(len(topic.partitions)) if partition is None else (partition,):
            topic.append(number, CODEC.key(source), CODEC.encode(mark), mark)

    def change(
        self, txid: str, seq: int, *, thread: int = 1, source: str = "a", partition: int = 0, payload: str = ""
    ) -> None:
        key = CODEC.key(f"{source}/1.{self.generation}/{thread}/{txid}")
        self.topics[source].append(partition, key, change_value(seq, payload or f"{txid}-{seq}"))

    def commit(
        self, txid: str, scn: int, changes: int = 1, clock: int = 0, *, thread: int = 1, source: str = "a",
        partition: int = 0, says_source: str = "",
    ) -> None:  # fmt: skip
        values = [change_value(seq, f"{txid}-{seq}") for seq in range(1, changes + 1)]
        commit = Commit(
            source=says_source or source, thread=thread, txid=txid, order=Order(scn, 1), commit_ts_us=clock,
            clock_us=clock, changes=changes, checksum=checksum(values), generation=self.generation,
        )  # fmt: skip
        key = CODEC.key(f"{source}/1.{self.generation}/{thread}/{txid}")
        self.topics[source].append(partition, key, CODEC.encode(commit), commit)

    def transaction(
        self, txid: str, scn: int, changes: int = 1, clock: int = 0, *, thread: int = 1, source: str = "a",
        partition: int = 0,
    ) -> None:  # fmt: skip
        for seq in range(1, changes + 1):
            self.change(txid, seq, thread=thread, source=source, partition=partition)
        self.commit(txid, scn, changes, clock, thread=thread, source=source, partition=partition)

    def abandon(self, txid: str, *, thread: int = 1, source: str = "a", partition: int = 0) -> None:
        key = CODEC.key(f"{source}/1.{self.generation}/{thread}/{txid}")
        self.topics[source].append(partition, key, CODEC.encode(Abandon(txid, 1)))

    def raw(self, key: str, value: bytes, *, source: str = "a", partition: int = 0) -> None:
        self.topics[source].append(partition, CODEC.key(key), value)

    # -- reading -----------------------------------------------------------------------------------------

    def read(self, source: str | None = None, partition: int | None = None, count: int = 1_000_000) -> None:
        """Feed what is there; the merger's wish to read a source again is fulfilled at once."""
        for (name, number), start in sorted(self.read_to.items()):
            if source in (None, name) and partition in (None, number):
                records = self.topics[name].partitions[number][start : start + count]
                self.read_to[(name, number)] = start + len(records)
                self.merger.feed(records)
        self.seek()

    def seek(self) -> None:
        for name in sorted(self.merger.rewound):
            self._seek(name)
        self.merger.rewound.clear()

    def release(self) -> list[str]:
        """All that can be released now, as `txid` or, for one that was skipped, `-txid`."""
        return [_name(released) for released in self.released()]

    def released(self) -> list[Released]:
        released = list(iter(self.merger.release, None))
        return [r for r in released if r is not None]

    def read_and_release(self) -> list[str]:
        self.read()
        return self.release()

    # -- the process -------------------------------------------------------------------------------------

    def save(self) -> Progress:
        positions: dict[str, dict[int, int]] = {}
        for (name, number), read_to in self.read_to.items():
            records = self.topics[name].partitions[number]
            positions.setdefault(name, {})[number] = records[read_to - 1].offset() + 1 if read_to else 0
        self.progress = CODEC.decode(CODEC.encode(self.merger.progress(positions)), Progress)
        return self.progress

    def restart(self) -> None:
        """Killed, and started again from the progress that was saved last."""
        assert self.progress is not None
        self.merger = Merger.from_progress(self.progress, classify, self.spool)
        self.read_to = {}
        for name in self.merger.sources:
            self._assign(name)

    def _assign(self, name: str) -> None:
        self.merger.bind(name, self.topics[name].name)
        self._seek(name)

    def _seek(self, name: str) -> None:
        for number, saved in self.merger.sources[name].saved.items():
            records = self.topics[name].partitions[number]
            self.read_to[(name, number)] = bisect_left(records, saved.offset, key=Record.offset)

    # -- looking -----------------------------------------------------------------------------------------

    def source(self, name: str = "a") -> SourceState:
        return self.merger.sources[name]

    def error(self, kind: type[Error], source: str = "a") -> Error:
        found = self.merger.sources[source].error
        assert type(found) is kind, f"{source}: {found!r}"
        assert isinstance(found, kind)
        return found

    def holder(self) -> str | None:
        held = self.merger.holder()
        return held[1].name if held else None

    def offset(self, source: str = "a", partition: int = 0) -> int:
        return self.source(source).saved[partition].offset


def _name(released: Released) -> str:
    entry = released.transaction
    return f"-{entry.key.txid}" if entry.skip is not None else entry.key.txid


def values_of(released: Released) -> list[bytes]:
    return [value for block in released.transaction.buffer.blocks() for value in block]
