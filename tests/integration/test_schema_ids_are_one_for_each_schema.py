"""Ids without a registry: two schemas that want the same one get two, whoever asks and whenever."""

from __future__ import annotations

import threading

import pytest

from lowwater.errors import SchemaError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.records import schemas
from lowwater.records.ids import SchemaId
from lowwater.records.schemas import SchemaStore
from lowwater.records.types import SchemaEntry
from lowwater.runtime.config import KafkaConfig
from lowwater_fleet.kafka.embedded import EmbeddedKafka


@pytest.fixture
def broker(kafka: EmbeddedKafka) -> KafkaConfig:
    config = KafkaConfig(bootstrap_servers=kafka.bootstrap_servers)
    Admin(config).ensure(topics.shared_topics())
    return config


@pytest.fixture
def wanted(unique: str, monkeypatch: pytest.MonkeyPatch) -> SchemaId:
    """The id that every schema's fingerprint gives in this test."""
    wanted = SchemaId(int(unique[1:], 16) & 0x3FFFFFFF)
    monkeypatch.setattr(schemas, "fingerprint", lambda _schema: wanted)
    return wanted


def _entry(unique: str, number: int) -> SchemaEntry:
    return SchemaEntry(f'{{"type":"fixed","name":"{unique}_{number}","size":1}}', f"{unique}-{number}")


def test_two_schemas_that_want_the_same_id_get_two(broker: KafkaConfig, unique: str, wanted: SchemaId) -> None:
    store = SchemaStore(broker)
    ids = [store.id_of(_entry(unique, number)) for number in range(3)]
    assert ids == [wanted, wanted + 1, wanted + 2]
    later = SchemaStore(broker)
    assert [later.id_of(_entry(unique, number)) for number in (2, 0, 1)] == [wanted + 2, wanted, wanted + 1]
    assert later.entry(SchemaId(wanted + 1)) == _entry(unique, 1)


def test_also_when_two_stores_ask_at_the_same_time(broker: KafkaConfig, unique: str, wanted: SchemaId) -> None:
    stores = [SchemaStore(broker) for _ in range(4)]
    together = threading.Barrier(len(stores))
    found: dict[int, SchemaId] = {}

    def ask(number: int) -> None:
        together.wait(20)
        found[number] = stores[number].id_of(_entry(unique, number // 2))

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(len(stores))]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert found[0] == found[1]
    assert found[2] == found[3]
    assert {found[0], found[2]} == {wanted, wanted + 1}
    fresh = SchemaStore(broker)
    assert [fresh.id_of(_entry(unique, number)) for number in (0, 1)] == [found[0], found[2]]


def test_a_schema_keeps_its_id_although_it_was_written_once_more_under_another(
    broker: KafkaConfig, unique: str, wanted: SchemaId
) -> None:
    store = SchemaStore(broker)
    first = store.id_of(_entry(unique, 0))
    store._write({SchemaId(wanted + 7): _entry(unique, 0)})
    store._write({first: _entry(unique, 1)})
    fresh = SchemaStore(broker)
    assert fresh.entry(first) == _entry(unique, 0), "the first write of an id counts"
    assert fresh.id_of(_entry(unique, 0)) == store.id_of(_entry(unique, 0)) == first


def test_the_ids_of_our_own_records_are_the_same_for_all(broker: KafkaConfig) -> None:
    assert SchemaStore(broker).record_codec().headers == SchemaStore(broker).record_codec().headers


def test_an_id_that_nobody_wrote_is_an_error_that_names_it(broker: KafkaConfig) -> None:
    with pytest.raises(SchemaError, match="schema 17 is not known here") as unknown:
        SchemaStore(broker).entry(SchemaId(17))
    assert unknown.value.hint
