"""Schema ids from a real schema registry. Needs one: `LOWWATER_TEST_REGISTRY_URL=http://… make test`."""

from __future__ import annotations

import os

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from tests.conftest import NewFleet
from tests.support.harness import Workload

from lowwater.records.schemas import open_store

URL = os.environ.get("LOWWATER_TEST_REGISTRY_URL", "")


@pytest.mark.skipif(not URL, reason="no schema registry: set LOWWATER_TEST_REGISTRY_URL to a Confluent-compatible one")
def test_the_registry_gives_the_ids(new_fleet: NewFleet) -> None:
    fleet = new_fleet(registry=URL)
    work = Workload(fleet.cluster(), transactions=50)
    fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    tables = {i: e for i, e in open_store(fleet.settings).entries().items() if fleet.sources[0] in e.subject}
    assert {e.table for e in tables.values()} == {"BANK.ACCOUNTS", "BANK.TRANSFERS"}
    with SchemaRegistryClient({"url": URL}) as client:
        for schema_id, entry in tables.items():
            assert entry.subject.startswith(f"lowwater.{fleet.sources[0]}.changes-lowwater.")
            assert client.get_latest_version(entry.subject).schema_id == schema_id
