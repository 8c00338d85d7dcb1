"""A producer's threads end with it, not when the garbage collector comes by."""

from __future__ import annotations

import os

import pytest

from lowwater.bus.producer import TransactionalProducer
from lowwater.config import KafkaConfig
from lowwater.errors import BusFatalError


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


@pytest.fixture
def nowhere() -> KafkaConfig:
    return KafkaConfig(bootstrap_servers="127.0.0.1:1", client={"log_level": "0"})


def test_one_that_is_dropped(nowhere: KafkaConfig) -> None:
    before = _threads()
    producer = TransactionalProducer(nowhere, "x")
    assert _threads() > before
    del producer
    assert _threads() == before


def test_one_that_is_closed_and_still_known(nowhere: KafkaConfig) -> None:
    before = _threads()
    producer = TransactionalProducer(nowhere, "x")
    producer.close()
    assert _threads() == before
    with pytest.raises(BusFatalError, match="is closed"):
        producer.begin()
    producer.close()
