"""A producer's threads end with it, not when the garbage collector comes by."""

from __future__ import annotations

import os

import pytest

from lowwater.bus.producer import TransactionalProducer
from lowwater.config import KafkaConfig
from lowwater.errors import BusFatalError
from lowwater_extractor.slab_producer import SlabProducer


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def nowhere() -> KafkaConfig:
    return KafkaConfig(bootstrap_servers="127.0.0.1:1", client={"log_level": "0"})


@pytest.fixture(params=[TransactionalProducer, SlabProducer])
def kind(request: pytest.FixtureRequest, nowhere: KafkaConfig) -> type[TransactionalProducer]:
    found: type[TransactionalProducer] = request.param
    # what is loaded with the first one stays
    found(nowhere, "x").close()
    return found


def test_one_that_is_dropped(nowhere: KafkaConfig, kind: type[TransactionalProducer]) -> None:
    before = _threads()
    producer = kind(nowhere, "x")
    assert _threads() > before
    del producer
    assert _threads() == before


def test_one_that_is_closed_and_still_known(nowhere: KafkaConfig, kind: type[TransactionalProducer]) -> None:
    before = _threads()
    producer = kind(nowhere, "x")
    producer.close()
    assert _threads() == before
    with pytest.raises(BusFatalError, match="is closed"):
        producer.begin()
    producer.close()
