"""Kafka's ledger only mirrors the manifests: it may be lost, and is made again; the manifests may not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.integration.landing.conftest import Group, NewGroup

from lowwater.codec.table import INT64, Column, TableSchema
from lowwater.errors import LakeDamagedError
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end
from lowwater.lake import Lake
from lowwater.lake.chain.manifest import manifest_path
from lowwater.records.types import Landed, Prepared

TABLE = TableSchema("bank", "B", "T", 1, (Column("ID", INT64),), ("ID",))


def _work(group: Group, transactions: int) -> None:
    with group.topic as topic:
        for _ in range(transactions):
            topic.transaction((TABLE, "c", None, (topic.gsn,)))


def _ledger(group: Group) -> list[Prepared | Landed]:
    found: list[Prepared | Landed] = []
    for message in read_to_end(group.settings.kafka, topics.ledger(group.name))[0]:
        value = message.value() or b""
        kind = group.topic.codec.record_type(value)
        assert kind is not None
        found.append(group.topic.codec.decode(value, kind))
    return found


def _mirrored_offset(group: Group) -> int:
    settings = {"bootstrap.servers": group.settings.kafka.bootstrap_servers, "group.id": topics.land_group(group.name)}
    consumer = Consumer(settings)
    (place,) = consumer.committed([TopicPartition(group.topic.name, 0)], timeout=10)
    consumer.close()
    return int(place.offset)


def test_prepared_then_landed_with_the_offsets_of_a_consumer_group(new_group: NewGroup) -> None:
    group = new_group()
    _work(group, 3)
    group.land()
    prepared, landed = _ledger(group)
    assert isinstance(prepared, Prepared)
    assert isinstance(landed, Landed)
    assert (prepared.attempt, prepared.n, landed.n) == (landed.attempt, 1, 1)
    assert (landed.gsn, landed.rows, landed.transactions, landed.files) == (3, 3, 3, 1)
    assert _mirrored_offset(group) == landed.offset == 6


def test_a_ledger_topic_that_was_deleted_is_made_again(new_group: NewGroup) -> None:
    group = new_group()
    for _ in range(3):
        _work(group, 2)
        group.land()
    before = [record for record in _ledger(group) if isinstance(record, Landed)]
    admin = AdminClient({"bootstrap.servers": group.settings.kafka.bootstrap_servers})
    admin.delete_topics([topics.ledger(group.name)])[topics.ledger(group.name)].result()
    time.sleep(1)
    group.land()
    assert [record for record in _ledger(group) if isinstance(record, Landed)] == before
    _work(group, 1)
    group.land()
    assert Lake.open(group.lake).gsn == 7
    assert [r.n for r in _ledger(group) if isinstance(r, Landed)] == [1, 2, 3, 4]


def test_a_manifest_that_is_missing_stops_the_landing(new_group: NewGroup) -> None:
    group = new_group()
    for _ in range(3):
        _work(group, 2)
        group.land()
    Path(group.lake, manifest_path(2)).rename(Path(group.lake, "away"))
    _work(group, 2)
    with pytest.raises(LakeDamagedError, match="2") as error:
        group.land()
    assert error.value.hint
    Path(group.lake, "away").rename(Path(group.lake, manifest_path(2)))
    group.land()
    assert Lake.open(group.lake).gsn == 8


def test_a_manifest_that_was_changed_stops_the_landing(new_group: NewGroup) -> None:
    group = new_group()
    for _ in range(2):
        _work(group, 2)
        group.land()
    path = Path(group.lake, manifest_path(1))
    path.write_text(path.read_text().replace('"rows": 2', '"rows": 3'))
    with pytest.raises(LakeDamagedError, match="does not follow"):
        group.land()
