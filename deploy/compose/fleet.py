"""The fleet's config for docker compose: the sources of the chosen profiles, all in one group with one lake.

Run once by the service `config`, with COMPOSE_PROFILES in its environment. A source whose extractor does not run would
hold the watermark, so only those are in it that do.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

LISTEN = {"host": "0.0.0.0", "port": 8080}

#: profile → name and config of its source
SOURCES: dict[str, tuple[str, dict[str, Any]]] = {
    "core": ("cluster", {"kind": "simulated_rac", "config": {"directory": "/var/lib/sources/cluster"}}),
    "postgres": (
        "postgres",
        {
            "kind": "postgres",
            "config": {
                "host": "postgres",
                "database": "bank",
                "user": "postgres",
                "password": "${env:POSTGRES_PASSWORD}",
                "tables": ["public.*"],
            },
        },
    ),
    "mysql": (
        "mysql",
        {
            "kind": "mysql",
            "config": {"host": "mysql", "user": "root", "password": "${env:MYSQL_PASSWORD}", "tables": ["bank.*"]},
        },
    ),
    "mongo": (
        "mongo",
        {"kind": "mongodb", "config": {"hosts": ["mongo:27017"], "replica_set": "rs0", "tables": ["bank.*"]}},
    ),
    "oracle": (
        "oracle",
        {
            "kind": "oracle",
            "config": {
                "capture": "logminer",
                "host": "oracle",
                "service": "FREE",
                "pdb": "FREEPDB1",
                "user": "c##lowwater",
                "password": "${env:ORACLE_PASSWORD}",
                "tables": ["BANK.*"],
            },
        },
    ),
    "turso": ("turso", {"kind": "turso", "config": {"path": "/var/lib/sources/turso/bank.db", "tables": ["main.*"]}}),
}
SPARK = {
    "spark.driver.memory": "1g",
    "spark.local.dir": "/var/lib/lowwater/spark",
    "spark.ui.enabled": "true",
    "spark.ui.port": "4040",
    "spark.ui.prometheus.enabled": "true",
    "spark.metrics.namespace": "lowwater",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
    "spark.sql.streaming.metricsEnabled": "true",
}


def fleet(profiles: str) -> dict[str, Any]:
    """`core,postgres` → the config. The profile `core` has the bank on a simulated cluster."""
    chosen = [part.strip() for part in profiles.split(",")]
    sources = {name: {**config, "http": LISTEN} for profile, (name, config) in SOURCES.items() if profile in chosen}
    if not sources:
        raise SystemExit("COMPOSE_PROFILES names no source: deploy/compose/up.sh core postgres …")
    token = {"name": "operator", "role": "operate", "token": "${env:LOWWATER_TOKEN}"}
    return {
        "kafka": {"bootstrap_servers": "kafka:9092"},
        "sources": sources,
        "groups": {
            "bank": {
                "sources": list(sources),
                "http": LISTEN,
                "lake": {"uri": "/var/lib/lake"},
                "land": {"spark": SPARK, "http": LISTEN},
            }
        },
        "control": {**LISTEN, "tokens": [token]},
        "state_directory": "/var/lib/lowwater",
    }


if __name__ == "__main__":
    Path("/etc/lowwater/fleet.yaml").write_text(yaml.safe_dump(fleet(os.environ["COMPOSE_PROFILES"])))
