"""`lowwater-merger --rebuild-progress --group bank`: progress from the end of the ordered topic, when its own is lost.

Without progress a merger would begin at gsn 1 again, and what has been released would be released twice. So it refuses
to start while the ordered topic is not empty, and this command tells it what was released: the last gsn, and of each
source the last transaction. The merger is fenced while it runs. What is lost for good: the group's clock between
sources (it goes on at the highest commit clock), and the record of commands.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lowwater.codec.varint import read_long
from lowwater.control.fold import ControlFold
from lowwater.errors import ConfigError, LowwaterError, MergeError, TopicError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.client import as_bus_error
from lowwater.kafka.consumer import STATE_SETTINGS, consumer_settings, read_to_end, topic_ends
from lowwater.kafka.producer import TransactionalProducer
from lowwater.records.codec import RecordCodec, decode_commit
from lowwater.records.positions import ORDER_MIN, U64_MAX, Order
from lowwater.records.schemas import open_store
from lowwater.records.types import (
    Commit,
    Control,
    Mark,
    MarkedThread,
    PartitionProgress,
    Position,
    Progress,
    ReleasedThread,
    Skip,
    Skipped,
    SourceProgress,
    Word,
    WordKind,
)
from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime import config
from lowwater.runtime.config import Settings
from lowwater.runtime.service import EXIT_ERROR, EXIT_STOPPED
from lowwater.runtime.times import now_us
from lowwater_merger.core.lanes import ReleaseKey
from lowwater_merger.joining import last_position

#: above every transaction id
_TXID_MAX = "\U0010ffff"


@dataclass
class Released:
    """What an ordered topic says of what was released."""

    gsn: int = 0
    clock_us: int = 0
    last: dict[str, ReleaseKey] = field(default_factory=dict)
    #: of each source, and of each of its threads
    threads: dict[str, dict[int, ReleaseKey]] = field(default_factory=dict)

    def add(self, gsn: int, commit: Commit | Skipped) -> None:
        key = ReleaseKey(commit.generation, commit.order, commit.thread, commit.txid)
        self.gsn = max(self.gsn, gsn)
        self.clock_us = max(self.clock_us, commit.clock_us)
        self.last[commit.source] = max(key, self.last.get(commit.source, key))
        threads = self.threads.setdefault(commit.source, {})
        threads[commit.thread] = max(key, threads.get(commit.thread, key))


@dataclass(frozen=True, slots=True)
class ChangesTopic:
    """A source's changes topic as it is now."""

    topic_id: str
    #: of each partition, the first offset that is left
    first_offsets: Mapping[int, int]
    position: Position | None
    #: threads that the group does without
    excluded: frozenset[int] = frozenset()


def before(order: Order) -> Order:
    """The order right below."""
    if order.minor:
        return Order(order.major, order.minor - 1)
    return Order(max(0, order.major - 1), U64_MAX) if order.major else ORDER_MIN


def rebuilt(
    group: str, released: Released, sources: Mapping[str, ChangesTopic], skips: tuple[Skip, ...], at_us: int
) -> Progress:
    """Pure. Everything is read again from the first offset that is left; what was released before is dropped then.

    A thread's transactions are released in their order, so its last one tells what was. Of a thread that the ordered
    topic has nothing of any more, all at or below the source's last key was; but of one that is excluded that is not
    known. Skips that were commanded before count as used: which of them were is not known, and one that was would hit
    another transaction with the same id.
    """
    gsn = released.gsn + 1
    words = [Word(gsn, WordKind.REBUILD.value, "", -1, "", "progress was lost", at_us)]
    words += [Word(gsn, WordKind.SKIP.value, s.source, s.thread, s.txid, s.reason, at_us, s.request) for s in skips]
    return Progress(
        group=group,
        next_gsn=gsn,
        clock_us=released.clock_us,
        control_version=0,
        sources=tuple(_source(name, topic, released) for name, topic in sorted(sources.items())),
        words=tuple(words),
    )


def _source(name: str, topic: ChangesTopic, released: Released) -> SourceProgress:
    last = released.last.get(name)
    position = topic.position
    known = released.threads.get(name, {})
    threads = known.keys() | {t.thread for t in (position.threads if position else ())}
    if last and (unknown := sorted(topic.excluded & threads - known.keys())):
        raise MergeError(
            f"thread {unknown[0]} is excluded, and the ordered topic has nothing of it any more: what of it was "
            "released is not known",
            source=name,
            thread=unknown[0],
            hint=f"`lowwater source reset {name} --yes --reason …` first: its tables are copied again",
        )
    generation = last.generation if last else (position.generation if position else 0)
    # a mark that speaks for nothing that is still to be released
    order = before(last.order) if last else ORDER_MIN
    marked = tuple(MarkedThread(thread, order, "open") for thread in sorted(threads))
    mark = Mark(0, released.clock_us if last else 0, marked, generation) if threads else None
    key = last or ReleaseKey(0, ORDER_MIN, -1, "")
    return SourceProgress(
        source=name,
        clock_us=released.clock_us,
        order=key.order,
        thread=key.thread,
        txid=key.txid,
        joined_gsn=released.gsn + 1,
        threads=tuple(_thread(thread, known.get(thread), key) for thread in sorted(threads)),
        partitions=tuple(PartitionProgress(p, first, mark) for p, first in sorted(_offsets(topic, generation).items())),
        excluded=(),
        topic_id=topic.topic_id,
        generation=key.generation,
    )


def _offsets(topic: ChangesTopic, generation: int) -> dict[int, int]:
    """Of a generation that something was released of, nothing before it is still to be: its marks would be too low."""
    position = topic.position
    starts = position.starts if position is not None and position.generation == generation else ()
    return {p: max([first, *starts[p : p + 1]]) for p, first in topic.first_offsets.items()}


def _thread(thread: int, own: ReleaseKey | None, last: ReleaseKey) -> ReleasedThread:
    """The last of this thread; where that is not known, all of it at or below the source's last key."""
    if own is not None:
        return ReleasedThread(thread, own.order, own.txid, own.generation)
    order = last.order if thread < last.thread else before(last.order)
    return ReleasedThread(thread, order, _TXID_MAX, last.generation)


# -- with Kafka ------------------------------------------------------------------------------------------


def rebuild(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lowwater-merger --rebuild-progress", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--group", required=True, help="the group, by its name in the config")
    parser.add_argument("--next-gsn", type=int, default=0, help="where the ordered topic has no record left to tell it")
    given = parser.parse_args(arguments)
    try:
        said = rebuild_progress(config.load(given.config), given.group, given.next_gsn)
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-merger: {error}\n")
        return EXIT_ERROR
    sys.stdout.write(said + "\n")
    return EXIT_STOPPED


def rebuild_progress(settings: Settings, group: str, next_gsn: int = 0) -> str:
    """Fences the merger, and writes progress. Durable when it returns; what it wrote, for people."""
    names = settings.group(group).sources
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    codec = open_store(settings).record_codec()
    producer = TransactionalProducer(settings.kafka, f"lowwater.merger.{group}")
    try:
        producer.init()
        if read_to_end(settings.kafka, topics.progress(group))[0]:
            raise ConfigError(f"{group} has its progress: there is nothing to rebuild", hint="start the merger")
        released = _read_released(settings, codec, group)
        if next_gsn > released.gsn:
            released.gsn = next_gsn - 1
        if not released.gsn:
            raise MergeError(
                f"no record is left in {topics.transactions(group)}: the last gsn is not known",
                hint="give --next-gsn: one above the gsn of the lake (`lowwater lake log`), or of your consumers",
            )
        control = _control(settings, codec)
        sources = {name: _changes_topic(settings, admin, codec, name, control.excluded(name)) for name in names}
        progress = rebuilt(group, released, sources, control.get("group", group).control.skips, now_us())
        producer.begin()
        producer.produce(topics.progress(group), codec.key(group), codec.encode(progress), 0)
        producer.commit()
    finally:
        producer.close()
    return f"{group}: progress is rebuilt; the next gsn is {progress.next_gsn}. Commanded skips must be given again"


def _read_released(settings: Settings, codec: RecordCodec, group: str) -> Released:
    """The whole topic is read, and nothing but the ends of transactions is kept."""
    released = Released()
    topic = topics.transactions(group)
    low, high = topic_ends(settings.kafka, topic, 0)
    commit_header, skipped_header = (codec.headers[record.__name__] for record in (Commit, Skipped))
    consumer = Consumer(consumer_settings(settings.kafka, "lowwater.state", **STATE_SETTINGS))
    end = low
    try:
        consumer.assign([TopicPartition(topic, 0, low)])
        while end < high:
            for message in consumer.consume(10_000, 1.0):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    end = message.offset() or 0
                    continue
                if error is not None:
                    raise as_bus_error(error, f"read {topic}[0]")
                value = message.value() or b""
                gsn, _ = read_long(message.key() or b"", HEADER_SIZE)
                if value[:HEADER_SIZE] == commit_header:
                    released.add(gsn, decode_commit(value))
                elif value[:HEADER_SIZE] == skipped_header:
                    released.add(gsn, codec.decode(value, Skipped))
    finally:
        consumer.close()
    return released


def _changes_topic(
    settings: Settings, admin: Admin, codec: RecordCodec, source: str, excluded: frozenset[int]
) -> ChangesTopic:
    topic = topics.changes(source)
    offsets = admin.first_offsets(topic, settings.source(source).partitions)
    position, topic_id = last_position(settings.kafka, codec, source), admin.topic_id(topic)
    if position is not None and position.topic_id not in ("", topic_id):
        raise TopicError(
            f"topic {topic} was deleted and made again: changes that were not released are gone",
            source=source,
            hint=f"`lowwater source reset {source} --yes --reason …` first",
        )
    return ChangesTopic(topic_id, offsets, position, excluded)


def _control(settings: Settings, codec: RecordCodec) -> ControlFold:
    fold = ControlFold()
    for message in read_to_end(settings.kafka, topics.CONTROL)[0]:
        fold.apply(codec.decode(message.value() or b"", Control))
    return fold
