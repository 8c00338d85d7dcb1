"""The merger without Kafka: records in, released transactions and progress out.

The output depends only on the records read and on the operator commands, so that a simulation can run it many times,
and a restart from any written progress gives the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import IntEnum
from typing import NamedTuple, Protocol

from lowwater.errors import (
    CodecError,
    LowwaterError,
    MergeError,
)
from lowwater.records.codec import decode_commit, decode_mark
from lowwater.records.positions import ORDER_MIN
from lowwater.records.types import Commit, PartitionProgress, Progress, Skip, SourceProgress, Word, WordKind
from lowwater.records.wire import HEADER_SIZE
from lowwater_merger.core.assemble import (
    VALUE_OVERHEAD_BYTES,
    Buffer,
    SpooledValues,
    memory_bytes,
    without_repeats,
)
from lowwater_merger.core.checks import check_place, check_same
from lowwater_merger.core.lanes import Lane, ReleaseKey, SpooledLane, Waiting
from lowwater_merger.core.limits import pauses
from lowwater_merger.core.release import Floor, SourceState, lowest
from lowwater_merger.core.watermark import PartitionMark

#: above this number, ids of waiting transactions are packed: slower, but in less memory
PLAIN_IDS_MAX = 50_000


class RecordKind(IntEnum):
    CHANGE = 0
    COMMIT = 1
    ABANDON = 2
    MARK = 3
    #: a record that does not belong in a changes topic
    FOREIGN = 4


class Message(Protocol):
    """The part of a consumed Kafka message that the merger uses."""

    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...


class Spool(Protocol):
    """Creates buffers on disk."""

    def values(self) -> SpooledValues: ...
    def lane(self) -> SpooledLane: ...


class Released(NamedTuple):
    gsn: int
    source: str
    clock_us: int
    transaction: Waiting


class Merger:
    """The merger of one group."""

    def __init__(self, group: str, classify: Callable[[bytes], RecordKind], spool: Spool | None = None) -> None:
        self.group = group
        self.sources: dict[str, SourceState] = {}
        self.next_gsn = 1
        self.clock_us = 0
        self.control_version = 0
        self.words: list[Word] = []
        self.left: dict[str, SourceProgress] = {}
        #: for status and metrics: changes read twice, and transactions read again after their release
        self.repeats_dropped = 0
        self.released_again_dropped = 0
        #: sources that must be read again from `saved`: the session seeks, then clears this
        self.rewound: set[str] = set()
        self._classify = classify
        self._kinds: dict[bytes, RecordKind] = {}
        self._topics: dict[str, SourceState] = {}
        self._open: dict[bytes, Buffer] = {}
        self._open_bytes = 0
        self._spool = spool

    # -- start and commands ------------------------------------------------------------------------------

    @classmethod
    def from_progress(
        cls, progress: Progress, classify: Callable[[bytes], RecordKind], spool: Spool | None = None
    ) -> Merger:
        merger = cls(progress.group, classify, spool)
        merger.next_gsn = progress.next_gsn
        merger.clock_us = progress.clock_us
        merger.control_version = progress.control_version
        merger.words = list(progress.words)
        merger.left = {saved.source: saved for saved in progress.left}
        for saved in progress.sources:
            merger.sources[saved.source] = SourceState(saved.source, saved)
        return merger

    def bind(self, source: str, topic: str) -> None:
        """Assign the records of this topic to this source."""
        self._topics[topic] = self.sources[source]

    def join(
        self, source: str, partitions: int, topic_id: str = "", at_us: int = 0, generation: int = 0,
        offsets: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        """Add a source. Its transactions get clocks after the group's last released clock.

        A source that left the group and has the same topic continues where it left, so that nothing is released twice.
        With a `generation` (after a gap) it starts at `offsets`, and records of earlier generations are ignored.
        """
        left = self.left.pop(source, None)
        starts = tuple(PartitionProgress(p, (offsets or {}).get(p, 0), None) for p in range(partitions))
        saved = SourceProgress(
            source=source, clock_us=self.clock_us, order=ORDER_MIN, thread=-1, txid="", joined_gsn=self.next_gsn,
            threads=(), partitions=starts, excluded=(), topic_id=topic_id, generation=generation,
        )  # fmt: skip
        if left is not None and left.topic_id == topic_id and not generation:
            clock_us = max(left.clock_us, self.clock_us)
            saved = replace(left, clock_us=clock_us, joined_gsn=self.next_gsn, excluded=())
        self.sources[source] = SourceState(source, saved)
        self._say(WordKind.JOIN, source, at_us=at_us)

    def known(self, source: str) -> SourceState | None:
        """The state of a source that is or was in the group; None if it never was."""
        left = self.left.get(source)
        return self.sources.get(source) or (SourceState(source, left) if left else None)

    def leave(self, source: str, reason: str, at_us: int = 0) -> None:
        self._forget_open(source)
        state = self.sources.pop(source)
        state.lanes.drop()
        self.left[source] = state.progress({}, keep=True)
        self.rewound.discard(source)
        self._say(WordKind.LEAVE, source, reason=reason, at_us=at_us)

    def exclude(self, source: str, thread: int, reason: str, at_us: int = 0) -> None:
        state = self.sources[source]
        was_out = state.is_out
        state.excluded.add(thread)
        self._say(WordKind.EXCLUDE, source, thread=thread, reason=reason, at_us=at_us)
        self._reconsider(state, was_out)

    def include(self, source: str, thread: int, reason: str, at_us: int = 0) -> None:
        state = self.sources[source]
        was_out = state.is_out
        state.excluded.discard(thread)
        if was_out:
            state.clock_us = max(state.clock_us, self.clock_us)
        self._say(WordKind.INCLUDE, source, thread=thread, reason=reason, at_us=at_us)
        self._reconsider(state, was_out)

    def skip(self, skip: Skip) -> None:
        """Skip one transaction, given by thread and id. The skip is recorded when the transaction would be released.

        A request that was already used has no effect.
        """
        state = self.sources[skip.source]
        known = state.skips.get((skip.thread, skip.txid))
        if known == skip or self.is_used(skip):
            return
        state.skips[(skip.thread, skip.txid)] = skip
        if known is None:
            self._again(state)

    def is_used(self, skip: Skip) -> bool:
        """Whether a transaction was skipped by this request."""
        return any(
            (word.word, word.source, word.thread, word.txid, word.request)
            == (WordKind.SKIP.value, skip.source, skip.thread, skip.txid, skip.request)
            for word in self.words
        )

    def stop(self, source: str, error: MergeError) -> None:
        """Stop reading the source. It holds its group until it is retried or excluded."""
        self._again(self.sources[source], error)

    def retry(self, source: str) -> None:
        """Read a stopped source again from its last progress."""
        self._again(self.sources[source])

    def _say(
        self, word: WordKind, source: str, thread: int = -1, txid: str = "", reason: str = "", at_us: int = 0,
        request: str = "",
    ) -> None:  # fmt: skip
        self.words.append(Word(self.next_gsn, word.value, source, thread, txid, reason, at_us, request))

    def _reconsider(self, state: SourceState, was_out: bool) -> None:
        """Apply changed exclusions.

        Records read so far stay buffered where possible: if they were read again, later transactions could be released
        before them.
        """
        if state.error is not None or state.is_out != was_out:
            self._again(state)
        else:
            state.reconsider()

    def _again(self, state: SourceState, error: MergeError | None = None) -> None:
        """Reset the source to its last progress: to read it again under the current commands, or to stop it."""
        self._forget_open(state.name)
        state.lanes.drop()
        fresh = state.restored()
        fresh.skips = state.skips
        fresh.error = error
        self.sources[state.name] = fresh
        self.rewound.add(state.name)
        for topic, bound in self._topics.items():
            if bound is state:
                self._topics[topic] = fresh

    def _forget_open(self, source: str, partition: int | None = None) -> None:
        """Drop the open transactions of the source, or of one of its partitions."""
        open_ = [(key, buffer) for key, buffer in self._open.items() if buffer.source == source]
        for key, buffer in open_:
            if partition is None or buffer.partition == partition:
                self._close(key)

    def _close(self, key: bytes) -> None:
        buffer = self._open.pop(key)
        self._open_bytes -= memory_bytes(buffer.values)
        buffer.drop()

    # -- reading -----------------------------------------------------------------------------------------

    def feed(self, messages: Iterable[Message]) -> None:
        """Read records, in the order of each partition. Changes are only appended: this loop is the hot path."""
        kinds, open_, change = self._kinds, self._open, RecordKind.CHANGE
        added = 0
        for message in messages:
            value = message.value() or b""
            kind = kinds.get(value[:HEADER_SIZE])
            if kind is change:
                key = message.key() or b""
                buffer = open_.get(key)
                if buffer is None:
                    buffer = self._begin(key, message)
                    if buffer is None:
                        continue
                buffer.values.append(value)
                added += len(value) + VALUE_OVERHEAD_BYTES
            elif kind is None:
                kinds[value[:HEADER_SIZE]] = self._classify(value)
                self.feed((message,))
            else:
                self._open_bytes += added
                added = 0
                self._control(kind, message, value)
        self._open_bytes += added

    def _begin(self, key: bytes, message: Message) -> Buffer | None:
        state = self._topics[message.topic() or ""]
        if not state.is_read:
            return None
        partition = message.partition() or 0
        buffer = Buffer(state.name, partition, message.offset() or 0, state.marks[partition])
        self._open[key] = buffer
        return buffer

    def _control(self, kind: RecordKind, message: Message, value: bytes) -> None:
        state = self._topics[message.topic() or ""]
        if not state.is_read:
            return
        try:
            if kind is RecordKind.COMMIT:
                self._commit(state, message, value)
            elif kind is RecordKind.MARK:
                self._mark(state, message.partition() or 0, value)
            elif kind is RecordKind.ABANDON:
                if (message.key() or b"") in self._open:
                    self._close(message.key() or b"")
            else:
                raise MergeError(
                    f"a foreign record at partition {message.partition()} offset {message.offset()}",
                    source=state.name,
                    hint="only the extractor may write to a changes topic",
                )
            state.hear(message.partition() or 0, message.offset() or 0)
        except MergeError as error:
            self.stop(state.name, error)
        except CodecError as error:
            what = f"the record at partition {message.partition()} offset {message.offset()} cannot be read: {error}"
            hint = "only the extractor may write to a changes topic; check that its version of lowwater is the same"
            self.stop(state.name, MergeError(what, source=state.name, hint=hint))

    def _mark(self, state: SourceState, partition: int, value: bytes) -> None:
        mark = decode_mark(value)
        last = state.marks[partition]
        now = last.followed_by(mark, state.name, partition) if last else PartitionMark.of(mark)
        if last is not None and now.generation > last.generation:
            # a generation starts with marks: open transactions are of the previous one and will never be committed
            self._forget_open(state.name, partition)
        state.marked(partition, now)

    def _commit(self, state: SourceState, message: Message, value: bytes) -> None:
        commit = decode_commit(value)
        key = message.key() or b""
        partition = message.partition() or 0
        mark = state.marks[partition]
        buffer = self._open.pop(key, None) or Buffer(state.name, partition, message.offset() or 0, mark)
        self._open_bytes -= memory_bytes(buffer.values)
        release_key = ReleaseKey(commit.generation, commit.order, commit.thread, commit.txid)
        # before the count is checked: a transaction that is read again may lack its first records
        if state.was_released(release_key):
            buffer.drop()
            self.released_again_dropped += 1
            return
        id_hash = hash(key)
        if state.is_waiting(id_hash) and self._is_repeat(state, partition, commit):
            buffer.drop()
            self.repeats_dropped += commit.changes
            return
        skip = state.skip_of(release_key) if state.skips else None
        if skip is None:
            try:
                check_place(state, commit, release_key, mark, partition)
                if not buffer.fits(commit):
                    buffer = self._settled(buffer, commit)
            except LowwaterError:
                buffer.drop()
                raise
        else:
            buffer.drop()
            buffer = Buffer(state.name, partition, buffer.first_offset, buffer.mark)
        # depends only on records of this partition: otherwise the clock could differ after a restart
        clock_us = max(commit.clock_us, (mark.clock_us if mark else 0) + 1)
        state.waiting_ids.add(id_hash)
        entry = Waiting(
            release_key, buffer, value, clock_us, commit.commit_ts_us, id_hash, commit.changes,
            message.offset() or 0, skip.reason if skip is not None else None,
        )  # fmt: skip
        state.lanes.append(partition, entry)
        state.touched()

    def _is_repeat(self, state: SourceState, partition: int, commit: Commit) -> bool:
        """Whether the commit repeats a waiting transaction. Raises DuplicateIdError if only the id is the same."""
        first = state.lanes.find(partition, commit.generation, commit.thread, commit.txid)
        if first is None:
            return False
        return check_same(state, decode_commit(first.commit), commit)

    def _settled(self, buffer: Buffer, commit: Commit) -> Buffer:
        clean = Buffer(buffer.source, buffer.partition, buffer.first_offset, buffer.mark)
        try:
            for kept, repeats in without_repeats(buffer.blocks(), commit):
                clean.values += kept
                self.repeats_dropped += repeats
                if buffer.spooled is not None and self._spool is not None:
                    clean.spool(clean.spooled or self._spool.values())
        except LowwaterError:
            clean.drop()
            raise
        buffer.drop()
        return clean

    # -- releasing ---------------------------------------------------------------------------------------

    def release(self) -> Released | None:
        """The next transaction of the group; None while a transaction with a lower clock may still arrive."""
        best = lowest(self.sources.values())
        if best is None or best[2] is None:
            return None
        floor, state, _ = best
        entry = state.pop(floor.clock_us)
        released = Released(self.next_gsn, state.name, floor.clock_us, entry)
        if entry.skip is not None:
            skip = state.use_skip(entry.key)
            self._say(WordKind.SKIP, state.name, skip.thread, skip.txid, skip.reason, request=skip.request)
        self.next_gsn += 1
        self.clock_us = max(self.clock_us, floor.clock_us)
        return released

    def holder(self) -> tuple[Floor, SourceState] | None:
        """The source that the group waits for; None if a transaction can be released or no source is active."""
        best = lowest(self.sources.values())
        return None if best is None or best[2] is not None else (best[0], best[1])

    def progress(self, positions: Mapping[str, Mapping[int, int]]) -> Progress:
        """The progress record to write. `positions`: by source and partition, the offset after the last record fed."""
        open_from: dict[str, dict[int, tuple[int, PartitionMark | None]]] = {}
        for buffer in self._open.values():
            partitions = open_from.setdefault(buffer.source, {})
            known = partitions.get(buffer.partition)
            if known is None or buffer.first_offset < known[0]:
                partitions[buffer.partition] = (buffer.first_offset, buffer.mark)
        sources = (
            # a rewound source has not been seeked yet: its consumer positions are still the old ones
            s.progress(positions.get(n, {}), open_from.get(n), keep=n in self.rewound)
            for n, s in sorted(self.sources.items())
        )
        return Progress(
            group=self.group,
            next_gsn=self.next_gsn,
            clock_us=self.clock_us,
            control_version=self.control_version,
            sources=tuple(sources),
            words=tuple(self.words),
            left=tuple(self.left[name] for name in sorted(self.left)),
        )

    # -- limits ------------------------------------------------------------------------------------------

    @property
    def memory_bytes(self) -> int:
        return self._open_bytes + sum(state.lanes.memory_bytes for state in self.sources.values())

    @property
    def size_bytes(self) -> int:
        spooled = sum(b.spooled.size_bytes for b in self._open.values() if b.spooled is not None)
        return self._open_bytes + spooled + sum(state.lanes.size_bytes for state in self.sources.values())

    @property
    def open_count(self) -> int:
        return len(self._open)

    def spill(self, memory_bytes_max: int) -> None:
        """Move buffers to disk, the largest first, while memory is over the limit."""
        for state in self.sources.values():
            state.pack_ids(PLAIN_IDS_MAX)
        if self._spool is None or self.memory_bytes <= memory_bytes_max:
            return
        target = memory_bytes_max // 2
        for buffer in sorted(self._open.values(), key=lambda b: len(b.values), reverse=True):
            if self.memory_bytes <= target or not buffer.values:
                break
            self._open_bytes -= buffer.spool(buffer.spooled or self._spool.values())
        lanes: list[Lane] = [lane for state in self.sources.values() for lane in state.lanes.lanes.values()]
        for lane in sorted(lanes, key=lambda lane: lane.memory_bytes, reverse=True):
            if self.memory_bytes <= target or len(lane.head) < 2:
                break
            lane.spill(self._spool.lane())

    def pauses(self, size_bytes_max: int) -> set[tuple[str, int]]:
        """Partitions to pause: those of sources that are not read, and others while buffers are full."""
        return pauses(self.sources.values(), self.size_bytes > size_bytes_max)
