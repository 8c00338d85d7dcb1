"""`lowwater-merger --rebuild-progress --group bank`: rebuilds a lost progress topic from the ordered topic.

Without progress a merger would start at gsn 1 again and release every transaction a second time. It therefore refuses
to start while the ordered topic is not empty. This command reads the last gsn and the last transaction of each source
and thread from the ordered topic and writes them as progress. A running merger is fenced. Two things are lost
permanently: the group's exact clock (it continues at the highest commit clock) and the list of operator commands.
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
    """The released transactions, as far as the ordered topic contains them."""

    gsn: int = 0
    clock_us: int = 0
    #: by source: the key of the last released transaction
    last: dict[str, ReleaseKey] = field(default_factory=dict)
    #: by source and thread: the same
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
    """The current state of a source's changes topic."""

    topic_id: str
    #: by partition: the first retained offset
    first_offsets: Mapping[int, int]
    position: Position | None
    #: excluded threads
    excluded: frozenset[int] = frozenset()


def before(order: Order) -> Order:
    """The highest order below `order`."""
    if order.minor:
        return Order(order.major, order.minor - 1)
    return Order(max(0, order.major - 1), U64_MAX) if order.major else ORDER_MIN


def rebuilt(
    group: str, released: Released, sources: Mapping[str, ChangesTopic], skips: tuple[Skip, ...], at_us: int
) -> Progress:
    """The progress record to write. Pure.

    Every changes topic is read again from its first retained offset; transactions released before are then dropped.
    Transactions of a thread are released in commit order, so its last released transaction is sufficient. If the
    ordered topic no longer contains a transaction of a thread, all its transactions at or below the source's last key
    count as released; for an excluded thread this cannot be assumed, and MergeError is raised. Earlier skip commands
    count as used: which of them were used is unknown, and a used one could match another transaction with the same id.
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
            f"thread {unknown[0]} is excluded, and the ordered topic no longer contains a transaction of it: it is "
            "unknown which of its transactions were released",
            source=name,
            thread=unknown[0],
            hint=f"run `lowwater source reset {name} --yes --reason …` first: its tables are then copied again",
        )
    generation = last.generation if last else (position.generation if position else 0)
    # lower than every transaction that is not yet released, so that none of them counts as late
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
    """By partition: the offset to read from.

    Records before the start of the current generation are skipped: once a transaction of this generation was released,
    all earlier ones were, and a mark of a lower generation would raise MarkWentBackError.
    """
    position = topic.position
    starts = position.starts if position is not None and position.generation == generation else ()
    return {p: max([first, *starts[p : p + 1]]) for p, first in topic.first_offsets.items()}


def _thread(thread: int, own: ReleaseKey | None, last: ReleaseKey) -> ReleasedThread:
    """The last released transaction of a thread; if unknown, all its transactions at or below the source's last key."""
    if own is not None:
        return ReleasedThread(thread, own.order, own.txid, own.generation)
    order = last.order if thread < last.thread else before(last.order)
    return ReleasedThread(thread, order, _TXID_MAX, last.generation)


# -- with Kafka ------------------------------------------------------------------------------------------


def rebuild(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lowwater-merger --rebuild-progress", description=__doc__)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument("--group", required=True, help="the group, by its name in the config")
    parser.add_argument("--next-gsn", type=int, default=0, help="the next gsn, if the ordered topic is empty")
    given = parser.parse_args(arguments)
    try:
        said = rebuild_progress(config.load(given.config), given.group, given.next_gsn)
    except LowwaterError as error:
        sys.stderr.write(f"lowwater-merger: {error}\n")
        return EXIT_ERROR
    sys.stdout.write(said + "\n")
    return EXIT_STOPPED


def rebuild_progress(settings: Settings, group: str, next_gsn: int = 0) -> str:
    """Fence the merger and write its progress, which is durable on return. Returns a message for the operator."""
    names = settings.group(group).sources
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    codec = open_store(settings).record_codec()
    producer = TransactionalProducer(settings.kafka, f"lowwater.merger.{group}")
    try:
        producer.init()
        if read_to_end(settings.kafka, topics.progress(group))[0]:
            raise ConfigError(
                f"the progress topic of {group} is not empty: nothing to rebuild", hint="start the merger"
            )
        released = _read_released(settings, codec, group)
        if next_gsn > released.gsn:
            released.gsn = next_gsn - 1
        if not released.gsn:
            raise MergeError(
                f"no record is left in {topics.transactions(group)}: the last gsn is unknown",
                hint="set --next-gsn to one above the last gsn of the lake (`lowwater lake log`) or of your consumers",
            )
        control = _control(settings, codec)
        sources = {name: _changes_topic(settings, admin, codec, name, control.excluded(name)) for name in names}
        progress = rebuilt(group, released, sources, control.get("group", group).control.skips, now_us())
        producer.begin()
        producer.produce(topics.progress(group), codec.key(group), codec.encode(progress), 0)
        producer.commit()
    finally:
        producer.close()
    return f"{group}: progress is rebuilt; the next gsn is {progress.next_gsn}. Unused skip commands must be repeated"


def _read_released(settings: Settings, codec: RecordCodec, group: str) -> Released:
    """Read the whole ordered topic; only Commit and Skipped records are decoded."""
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
            f"topic {topic} was deleted and made again: changes that were not released are lost",
            source=source,
            hint=f"run `lowwater source reset {source} --yes --reason …` first",
        )
    return ChangesTopic(topic_id, offsets, position, excluded)


def _control(settings: Settings, codec: RecordCodec) -> ControlFold:
    fold = ControlFold()
    for message in read_to_end(settings.kafka, topics.CONTROL)[0]:
        fold.apply(codec.decode(message.value() or b"", Control))
    return fold
