"""A producer's threads end with it, not when the garbage collector comes by; nor does it wait for ever."""

from __future__ import annotations

import os
import time

import pytest

from lowwater.errors import BusDoubtError, BusFatalError
from lowwater.kafka import producer as producer_module
from lowwater.kafka.producer import TransactionalProducer
from lowwater.runtime.config import KafkaConfig
from lowwater_extractor.publish.slab_producer import SlabProducer


def _threads() -> int:
    """Once no thread comes or goes: the kernel lists one that has ended for a moment longer."""
    while True:
        before = len(os.listdir("/proc/self/task"))
        time.sleep(0.05)
        if len(os.listdir("/proc/self/task")) == before:
            return before


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


def test_one_that_waits_for_a_broker_can_be_stopped(nowhere: KafkaConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "INIT_SECONDS", 0.2)
    ticks: list[int] = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            raise BusDoubtError("it is enough")

    producer = TransactionalProducer(nowhere, "x", tick)
    with pytest.raises(BusDoubtError, match="enough"):
        producer.init()
    producer.close()


def test_one_that_reaches_no_broker_ends_though_its_error_is_known(
    nowhere: KafkaConfig, kind: type[TransactionalProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services try again while the broker is down; the traceback of an error refers to the producer."""
    monkeypatch.setattr(producer_module, "INIT_SECONDS", 0.05)
    before = _threads()
    with pytest.raises(BusDoubtError) as failed:
        kind(nowhere.model_copy(update={"stall_seconds": 0.1}), "x").init()
    assert _threads() == before
    assert failed.value.hint
