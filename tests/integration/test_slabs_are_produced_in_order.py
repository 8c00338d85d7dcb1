"""Slabs through the client's own function, on a real broker: each message once, in its order, whatever happens."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from lowwater.codec.varint import long
from lowwater.errors import BusError, BusFatalError, FencedError, TopicMissingError
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.topics import Topic
from lowwater.runtime.config import KafkaConfig
from lowwater_extractor._native.slab import ROWS, Slab
from lowwater_extractor.publish import slab_producer
from lowwater_extractor.publish.slab_producer import SlabProducer
from lowwater_fleet.kafka.embedded import EmbeddedKafka

HEADER = b"\0\0\0\x27\x10"


@pytest.fixture
def config(kafka: EmbeddedKafka, unique: str) -> KafkaConfig:
    found = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    Admin(found).ensure([Topic(unique, 1, {})])
    return found


@pytest.fixture
def producer(config: KafkaConfig, unique: str) -> Iterator[SlabProducer]:
    made = SlabProducer(config, unique)
    made.init()
    yield made
    made.close()


def _slab(count: int, start: int = 0) -> Slab:
    made = Slab()
    frames = [(HEADER, b"%010d" % number) for number in range(start, start + count)]
    assert made.add_changes(b"key", frames, 0, ROWS, start + 1) == count
    return made


def _numbers(config: KafkaConfig, topic: str) -> list[int]:
    messages, _ = read_to_end(config, topic)
    assert all(message.key() == b"key" for message in messages)
    values = [message.value() or b"" for message in messages]
    numbers = [int(value[-10:]) for value in values]
    assert values == [HEADER + long(number + 1) + b"%010d" % number for number in numbers]
    return numbers


def _send(producer: SlabProducer, topic: str, slab: Slab) -> None:
    producer.begin()
    producer.produce_slab(topic, slab, 0)
    # the memory is used again at once: the client has copied what it took
    slab.clear()
    slab.add_changes(b"xxx", [(b"\xff" * 5, b"\xff" * 50)] * 4000, 0, ROWS, 1)
    producer.flush()
    producer.commit()


def _send_on(producer: SlabProducer, topic: str) -> None:
    """Without a flush, whose answer would say it, too."""
    for _ in range(500):
        producer.produce_slab(topic, _slab(10), 0)
        time.sleep(0.01)


def test_the_client_takes_them_as_they_are(config: KafkaConfig, unique: str, producer: SlabProducer) -> None:
    assert producer._client is not None, "here it has plugins"
    for _ in range(2):
        _send(producer, unique, _slab(4000))
    assert _numbers(config, unique) == [*range(4000)] * 2


def test_without_plugins_they_become_messages(
    config: KafkaConfig, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slab_producer, "_library", lambda: None)
    producer = SlabProducer(config, unique)
    producer.init()
    assert producer._client is None
    _send(producer, unique, _slab(1000))
    producer.close()
    assert _numbers(config, unique) == [*range(1000)]


def test_a_full_queue_is_waited_for(config: KafkaConfig, unique: str) -> None:
    config = config.model_copy(update={"client": {"queue.buffering.max.messages": "100"}})
    ticks: list[int] = []
    producer = SlabProducer(config, unique, lambda: ticks.append(1))
    producer.init()
    producer.begin()
    for start in range(0, 4000, 1000):
        # as a change that is larger than a slab is, and a mark
        producer.produce_slab(unique, _slab(999, start), 0)
        alone = HEADER + long(start + 1000) + b"%010d" % (start + 999)
        producer.produce(unique, b"key", alone, 0)
    producer.flush()
    producer.commit()
    producer.close()
    assert ticks, "it was full"
    assert _numbers(config, unique) == [*range(4000)]


def test_a_partition_that_is_not_there_has_its_own_error(unique: str, producer: SlabProducer) -> None:
    _send(producer, unique, _slab(10))
    producer.begin()
    with pytest.raises(TopicMissingError, match="partition"):
        producer.produce_slab(unique, _slab(10), 7)


def test_a_message_that_is_refused_alone_is_named(config: KafkaConfig, unique: str) -> None:
    config = config.model_copy(update={"client": {"message.max.bytes": "2000"}})
    producer = SlabProducer(config, unique)
    producer.init()
    producer.begin()
    made = Slab()
    made.add_changes(b"key", [(HEADER, b"x" * size) for size in (10, 5000, 10, 10)], 0, ROWS, 1)
    with pytest.raises(BusError, match="too large"):
        producer.produce_slab(unique, made, 0)
    producer.close()


def test_who_was_fenced_is_told_so(config: KafkaConfig, unique: str, producer: SlabProducer) -> None:
    producer.begin()
    producer.produce_slab(unique, _slab(10), 0)
    successor = SlabProducer(config, unique)
    successor.init()
    with pytest.raises(FencedError):
        _send_on(producer, unique)
    _send(successor, unique, _slab(5))
    successor.close()
    assert _numbers(config, unique) == [*range(5)]


def test_a_closed_one_takes_nothing(unique: str, producer: SlabProducer) -> None:
    producer.begin()
    producer.close()
    with pytest.raises(BusFatalError, match="closed"):
        producer.produce_slab(unique, _slab(10), 0)


def test_each_producer_has_its_own_client(config: KafkaConfig, unique: str) -> None:
    producers = [SlabProducer(config, f"{unique}{number}") for number in range(3)]
    assert len({producer._client for producer in producers}) == 3
    for producer in producers:
        producer.close()
