"""Dropped and masked columns: what is hidden is in no topic, no log and no error; nor is a secret of the config."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from tests.conftest import SMALL_RELEASES, NewFleet
from tests.support.harness import Fleet, get

from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end
from lowwater.records.wire import HEADER_SIZE, schema_id_of

HASH_KEY = "a-key-that-nobody-may-see"
PASSWORD = "a-password-that-nobody-may-see"
PEOPLE = TableSchema(
    "", "BANK", "PEOPLE", 1,
    (
        Column("ID", INT64, nullable=False), Column("NAME", STRING), Column("SSN", STRING), Column("PHONE", STRING),
        Column("SALARY", INT64), Column("DIARY", STRING),
    ),
    ("ID",),
)  # fmt: skip
COLUMNS = {
    "drop": ["BANK.PEOPLE.DIARY"],
    "mask": {"BANK.PEOPLE.SSN": "hash", "BANK.PEOPLE.PHONE": "redact", "BANK.PEOPLE.SALARY": "null"},
    "hash_key": "${env:TEST_HASH_KEY}",
}
ROWS = [
    (1, "Ada", "ssn-of-ada", "phone-of-ada", 123456789, "diary-of-ada"),
    (2, "Bob", "ssn-of-bob", None, 987654321, "diary-of-bob"),
]
NEW_ADA = (1, "Ada", "ssn-of-ada", "new-phone", 223456789, "diary-of-ada")
HIDDEN = ["ssn-of", "phone-of", "new-phone", "diary-of", "123456789", "987654321", HASH_KEY, PASSWORD]


def _captured(fleet: Fleet) -> tuple[list[dict[str, Any]], str]:
    """The changes as a consumer decodes them, and what the extractor shows of itself."""
    cluster = fleet.cluster(tables=[PEOPLE])
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    transaction = cluster.begin(1)
    for row in ROWS:
        cluster.insert(transaction, PEOPLE.full_name, row)
    cluster.update(transaction, PEOPLE.full_name, ROWS[0], NEW_ADA)
    cluster.commit(transaction)
    cluster.heartbeat()
    fleet.wait_for_all()
    found: list[Any] = []
    for value in fleet.ordered()[0].values:
        schema = fastavro.parse_schema(json.loads(fleet.store.entry(schema_id_of(value)).schema))
        found.append(fastavro.schemaless_reader(io.BytesIO(value[HEADER_SIZE:]), schema, None))
    shown = "".join(get(extractor, path)[1] for path in ("/status", "/metrics"))
    return found, shown


def test_hidden_columns_and_secrets_are_nowhere(new_fleet: NewFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_HASH_KEY", HASH_KEY)
    monkeypatch.setenv("TEST_PASSWORD", PASSWORD)
    fleet = new_fleet(
        source={"columns": COLUMNS, "mark_seconds": 0.2},
        group={**SMALL_RELEASES, "delete_seconds": 3600.0},
        kafka={"client": {"sasl.password": "${env:TEST_PASSWORD}"}},
    )
    changes, shown = _captured(fleet)
    ada, bob, changed = (change["after"] for change in changes)
    assert list(ada) == ["ID", "NAME", "SSN", "PHONE", "SALARY"]
    assert (ada["ID"], ada["NAME"], ada["PHONE"], ada["SALARY"]) == (1, "Ada", "***", None)
    assert (bob["PHONE"], bob["SALARY"]) == (None, None), "what was null stays null"
    assert len(ada["SSN"]) == 64
    assert ada["SSN"] == changed["SSN"] == changes[2]["before"]["SSN"] != bob["SSN"], "equal values stay equal"

    kafka = fleet.settings.kafka
    topic = b"".join(value for _, _, value in fleet.changes())
    topic += b"".join(m.value() or b"" for m in read_to_end(kafka, topics.transactions(fleet.group))[0])
    topic += b"".join(m.value() or b"" for m in read_to_end(kafka, topics.SCHEMAS)[0])
    logs = "".join(path.read_text() for path in (fleet.directory / "logs").iterdir())
    for hidden in HIDDEN:
        assert hidden.encode() not in topic
        assert hidden not in logs
        assert hidden not in shown
    assert b"DIARY" not in topic.replace(b"BANK.PEOPLE.DIARY", b""), "a dropped column is not in the schema"


def test_a_secret_that_is_not_set_stops_the_source_and_names_the_variable(new_fleet: NewFleet) -> None:
    fleet = new_fleet(source={"columns": COLUMNS})
    fleet.cluster(tables=[PEOPLE])
    extractor = fleet.extractor()
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s.get("state") == "failed")
    assert shown["error"]["error"] == "ConfigError"
    assert "TEST_HASH_KEY is not set" in shown["error"]["what"]


def test_a_key_column_cannot_be_dropped(new_fleet: NewFleet) -> None:
    fleet = new_fleet(source={"columns": {"drop": ["BANK.PEOPLE.ID"]}})
    cluster = fleet.cluster(tables=[PEOPLE])
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    transaction = cluster.begin(1)
    cluster.insert(transaction, PEOPLE.full_name, ROWS[0])
    cluster.commit(transaction)
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s.get("state") == "failed")
    assert "BANK.PEOPLE.ID is part of the key" in shown["error"]["what"]
    assert not any(hidden in str(shown) for hidden in HIDDEN)


def test_a_rule_for_a_column_that_its_table_does_not_have_stops_the_source_before_anything_is_published(
    new_fleet: NewFleet,
) -> None:
    """A slip of the pen must not publish what was to be hidden."""
    fleet = new_fleet(source={"columns": {"mask": {"BANK.PEOPLE.SSM": "null"}, "drop": ["BANK.NOT_YET.THERE"]}})
    cluster = fleet.cluster(tables=[PEOPLE])
    extractor = fleet.extractor()
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s.get("state", "starting") != "starting")
    assert shown["state"] == "failed"
    assert "BANK.PEOPLE has no column SSM" in shown["error"]["what"]
    assert "SSN" in shown["error"]["hint"]
    transaction = cluster.begin(1)
    cluster.insert(transaction, PEOPLE.full_name, ROWS[0])
    cluster.commit(transaction)
    assert fleet.changes() == []
