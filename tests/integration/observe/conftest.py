"""A fleet of every kind of service at work, and a Prometheus that watches it: one for all tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest
from tests.support.harness import LAND, Fleet, get, skip_without_spark, wait_until
from tests.support.postgres import Database
from tests.support.postgres_fleet import Pgbench, source_config
from tests.support.prometheus import Prometheus, find

from lowwater_devkit.demo.bank import simulated_cluster
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

#: as docs/metrics.md says
SERVLET = {
    "spark.ui.enabled": "true",
    "spark.ui.prometheus.enabled": "true",
    "spark.metrics.namespace": "lowwater",
    "spark.metrics.conf.*.sink.prometheusServlet.class": "org.apache.spark.metrics.sink.PrometheusServlet",
    "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
    "spark.metrics.conf.*.source.jvm.class": "org.apache.spark.metrics.source.JvmSource",
    "spark.sql.streaming.metricsEnabled": "true",
}


class WatchedFleet(Fleet):
    """A simulated cluster and a PostgreSQL in one group."""

    def add_postgres(self, database: Database) -> None:
        of_postgres = {"kind": "postgres", "config": source_config(database, chunk_rows=50_000)}
        self._raw["sources"][self.sources[1]].update(of_postgres)
        self._save()


@dataclass(frozen=True)
class Watched:
    fleet: Fleet
    services: dict[str, Service]
    prometheus: Prometheus


@pytest.fixture(scope="module")
def watched(
    kafka: EmbeddedKafka,
    postgres_servers: Callable[[int], EmbeddedPostgres],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Watched]:
    find("prometheus")
    skip_without_spark()
    database = Database(postgres_servers(18))
    pgbench = Pgbench(database)
    directory = tmp_path_factory.mktemp("watched")
    ui = free_port()
    land = {"trigger_seconds": 1, "spark": {**LAND["spark"], **SERVLET, "spark.ui.port": str(ui)}}
    lake = {"uri": str(directory / "lake"), "compact_seconds": -1}
    fleet = WatchedFleet(directory, kafka.bootstrap_servers, "watched", sources=2, lake=lake, land=land)
    fleet.add_postgres(database)
    options = ("--threads", "2", "--rate", "20", "--transactions", "0", "--stay")
    cluster = simulated_cluster(fleet.clusters[fleet.sources[0]], directory / "logs", *options)
    prometheus: Prometheus | None = None
    try:
        cluster.start()
        extractors = {source: fleet.extractor(source) for source in fleet.sources}
        running = {**extractors, "merger": fleet.merger(), "control": fleet.control(), "spark": fleet.lander()}
        addresses = [f"127.0.0.1:{service.http_port}" for service in running.values()]
        prometheus = Prometheus(
            directory,
            {"lowwater": ("/metrics", addresses), "lowwater-spark": ("/metrics/prometheus", [f"127.0.0.1:{ui}"])},
        )
        with pgbench.working(clients=1, rate=20):
            prometheus.wait_until_up(len(addresses) + 1)
            _wait_until_all_has_happened(prometheus, fleet)
            get(running["control"], "/subjects")
            yield Watched(fleet, running, prometheus)
    finally:
        if prometheus is not None:
            prometheus.stop()
        cluster.kill()
        fleet.kill_all()
        database.drop()


def _wait_until_all_has_happened(prometheus: Prometheus, fleet: Fleet) -> None:
    """Rows were copied, and landings were made between two scrapes: then every rate has something to count."""
    for what in ("sum(lowwater_copy_rows_total) > 0", "increase(lowwater_land_landings_total[5m]) > 0"):
        try:
            wait_until(what, partial(prometheus.query, what), 400)
        except AssertionError as error:
            raise AssertionError(f"{error}; {fleet.log_tails()}") from error
