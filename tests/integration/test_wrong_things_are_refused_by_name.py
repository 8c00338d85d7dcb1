"""A topic, a row or a database that is not as it must be: the error says what, where and what to do."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, get, wait_until

from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_fleet.cli import operate as operate_cli

FAILED = 1
MEBIBYTE = 1 << 20
#: no column holds more than 64 kB
PARTS = [f"PART{number}" for number in range(320)]
DOCUMENTS = TableSchema(
    "",
    "BANK",
    "DOCUMENTS",
    1,
    (Column("ID", INT64, nullable=False), *(Column(part, STRING) for part in PARTS)),
    ("ID",),
)


def _admin(fleet: Fleet) -> AdminClient:
    return AdminClient({"bootstrap.servers": fleet.settings.kafka.bootstrap_servers})


def _last_line(fleet: Fleet, service: str) -> str:
    return next((fleet.directory / "logs").glob(f"{service}-*.log")).read_text().splitlines()[-1]


def _ensure(fleet: Fleet) -> None:
    source = fleet.sources[0]
    Admin(fleet.settings.kafka).ensure(
        [*topics.shared_topics(), *topics.source_topics(source, fleet.settings.source(source))]
    )


# -- topics ----------------------------------------------------------------------------------------------


def test_a_changes_topic_with_other_partitions_ends_the_start_and_says_how_many_there_are(new_fleet: NewFleet) -> None:
    fleet = new_fleet(partitions=3)
    fleet.cluster()
    _ensure(fleet)
    fleet.change_source(partitions=4)
    assert fleet.extractor().wait(30) == FAILED
    line = _last_line(fleet, "extractor")
    assert "has 3 partitions, the config says 4 (partitions cannot be changed: set partitions to 3)" in line
    assert fleet.merger().wait(30) == FAILED
    assert "set partitions to 3" in _last_line(fleet, "merger")
    fleet.change_source(partitions=3)
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    assert extractor.is_running


def test_a_changes_topic_that_would_lose_records_ends_the_start_with_the_command_that_mends_it(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet()
    fleet.cluster()
    _ensure(fleet)
    name = topics.changes(fleet.sources[0])
    wrong = ConfigEntry("retention.ms", "60000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[wrong])
    admin = _admin(fleet)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    assert fleet.extractor().wait(30) == FAILED
    line = _last_line(fleet, "extractor")
    assert f"topic {name} has retention.ms=60000, it needs -1" in line
    assert f"kafka-configs.sh --alter --entity-type topics --entity-name {name} --add-config retention.ms=-1" in line


def test_a_changes_topic_that_was_made_again_stops_the_group(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    work = Workload(fleet.cluster(), transactions=30)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    extractor.kill()
    merger.kill()
    admin = _admin(fleet)
    for future in admin.delete_topics([topics.changes(source)]).values():
        future.result()
    merger = fleet.merger()
    shown = fleet.wait_for_status(merger, "the error", lambda s: s.get("state") == "failed")
    assert shown["error"]["error"] == "TopicError"
    assert "was deleted and made again" in shown["error"]["what"]
    assert "source reset" in shown["error"]["hint"]


# -- rows ------------------------------------------------------------------------------------------------


def _document(cluster: Cluster, number: int, size: int) -> None:
    transaction = cluster.begin(1)
    cluster.insert(transaction, DOCUMENTS.full_name, (number, *["x" * (size // len(PARTS))] * len(PARTS)))
    cluster.commit(transaction)
    cluster.heartbeat()


def test_a_row_beyond_16_mb_stops_the_source_with_its_key_until_the_column_is_dropped(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    cluster = fleet.cluster(tables=[DOCUMENTS])
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    _document(cluster, 1, 15 * MEBIBYTE)
    fleet.wait_for_all()
    fleet.assert_good()
    _document(cluster, 4711, 17 * MEBIBYTE)
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s["state"] == "failed")
    error: dict[str, Any] = shown["error"]
    assert (error["error"], error["source"]) == ("RowTooLargeError", source)
    assert "BANK.DOCUMENTS ID=4711" in error["what"]
    assert "columns.drop" in error["hint"]
    assert len(str(shown)) < 2000, "the row itself is not in the error"
    assert get(extractor, "/health/ready")[0] == 503
    assert get(extractor, "/health/live")[0] == 200

    extractor.stop()
    fleet.change_source(columns={"drop": [f"BANK.DOCUMENTS.{part}" for part in PARTS]})
    fleet.extractor()
    fleet.wait_for_all()
    verdict = fleet.verdict(decode=False)
    assert verdict.is_good, verdict.details


# -- databases -------------------------------------------------------------------------------------------


def test_a_database_with_another_incarnation_stops_its_source_and_holds_the_group(new_fleet: NewFleet) -> None:
    fleet = new_fleet(sources=2)
    source, other = fleet.sources
    # its commits have the time of day, in seconds: what comes a while after the other's last mark is later than that
    cluster, healthy = fleet.cluster(source), fleet.cluster(other, now_us=lambda: time.time_ns() // 1000)
    extractor = fleet.extractor(source)
    fleet.extractor(other)
    merger = fleet.merger()
    for name in fleet.sources:
        fleet.wait_for_capture(name)
    works = [Workload(cluster, transactions=20), Workload(healthy, transactions=40)]
    works[0].run()
    works[1].run(20)
    fleet.wait_for_all()
    cluster.reset_logs()
    shown = fleet.wait_for_status(extractor, "the error", lambda s: s["state"] == "failed")
    assert shown["error"]["error"] == "IncarnationError"
    time.sleep(1.1)
    works[1].run()
    fleet.wait_for_status(merger, "the holder", lambda s: (s["holder"] or {}).get("source") == source)
    assert len(fleet.ordered()) < sum(map(len, fleet.histories().values()))

    # a word is not a repair: it is tried again, and refused again
    operate_cli.resume(source, "try again", fleet.config)
    wait_until("the second try", lambda: (extractor.log.read_text()).count("IncarnationError") >= 2)
    assert extractor.is_running
    operate_cli.exclude(source, 1, "restored", fleet.config)
    operate_cli.exclude(source, 2, "restored", fleet.config)
    fleet.wait_for_all()
    fleet.assert_good()
