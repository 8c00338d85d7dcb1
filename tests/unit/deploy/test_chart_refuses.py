"""Wrong values are refused in words that a person understands, before anything is installed."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.deploy.chart import CHART, LEAST, helm, merged, refused

_ON_DISK = {"uri": "/lake", "persistence": {"size": "1Gi"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kafka": {"bootstrapServers": ""}}, "kafka.bootstrapServers is empty: give the brokers as host:port"),
        ({"kafka": {"bootstrapServers": "kafka"}}, 'kafka.bootstrapServers is "kafka": give the brokers as host:port'),
        ({"kafka": {"replication": 0}}, "kafka.replication: Must be greater than or equal to 1"),
        ({"kafka": {"client": {"sasl.password": "hunter2"}}}, "kafka.client.sasl.password holds a secret"),
        ({"sources": {"bank": {"kind": "postgresql"}}}, 'sources.bank.kind must be one of the following: "postgres"'),
        ({"sources": {"bank": {"config": {"password": "hunter2"}}}}, "sources.bank.config.password holds a secret"),
        ({"sources": {"bank": {"config": {"tls": {"key_password": "hunter2"}}}}}, "config.tls.key_password holds"),
        ({"sources": {"bank": {"setings": {}}}}, "sources.bank: Additional property setings is not allowed"),
        ({"sources": {"bank": {"settings": {"partitions": "four"}}}}, "Invalid type. Expected: integer, given: string"),
        ({"sources": {"Bank": {"kind": "postgres"}}}, "the name of source Bank is"),
        ({"sources": {"bank-": {"kind": "postgres"}}}, "begins and ends with a letter or a digit"),
        ({"groups": {"bank": {"sources": ["knab"]}}}, "groups.bank.sources names knab, which is not under sources"),
        ({"groups": {"shop": {"sources": ["bank"]}}}, "source bank is in the groups bank and shop: it can be in one"),
        ({"groups": {"bank": {"sources": []}}}, "groups.bank.sources: Array must have at least 1 items"),
        ({"groups": {"bank": {"lake": {"uri": "lake"}}}}, "a lake is s3://bucket/prefix"),
        ({"groups": {"bank": {"lake": {"uri": "/lake"}}}}, "the lake is gone with its pod"),
        ({"groups": {"bank": {"lake": {"options": {"secret_access_key": "x"}}}}}, "options.secret_access_key holds"),
        ({"groups": {"bank": {"lake": {"uri": "/lake", "persistence": {"size": "1GB"}}}}}, "a size is written as 20Gi"),
        ({"groups": {"bank": {"lake": _ON_DISK}}, "landing": {"mode": "cluster"}}, "executors on other nodes"),
        ({"landing": {"mode": "yarn"}}, 'landing.mode must be one of the following: "local", "cluster", "operator"'),
        ({"landing": {"driverMemory": "2Gi"}}, "memory of a JVM is written as 2g"),
        ({"landing": {"spark": {"spark.sql.shuffle.partitions": 8}}}, "Expected: string, given: integer"),
        ({"control": {"tokens": []}}, "whoever reaches the API can operate the fleet"),
        ({"control": {"existingSecret": ""}}, "Create a Secret with a token"),
        ({"control": {"enabled": False}, "ingress": {"enabled": True}}, "control.enabled is false"),
        ({"ingress": {"enabled": True}}, "ingress.host is missing"),
        ({"strimzi": {"topics": {"enabled": True}}}, "strimzi.cluster is empty: give the name of the Kafka object"),
        ({"mergr": {}}, "Additional property mergr is not allowed"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_with_a_reason(change: dict[str, Any], words: str) -> None:
    said = refused(merged(LEAST, change))
    assert words in said
    assert "hunter2" not in said


@pytest.mark.parametrize("value", ["prometheusRule", "dashboards"])
def test_folder_that_was_not_packaged_has_no_alerts_and_says_how_to_get_them(value: str) -> None:
    values = merged(LEAST, {"monitoring": {value: {"enabled": True}}})
    code, _, err = helm("template", "lw", str(CHART), values=values)
    assert code != 0
    assert f"monitoring.{value}: the alerts and dashboards are in the packaged chart only: run `make chart`" in err
    code, _, err = helm("template", "lw", str(CHART), values=LEAST)
    assert code == 0, err
