"""Whatever ends or blocks a session shows within seconds: state, error, readiness, metric, and on the page."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.conftest import NewFleet, NewKafka
from tests.support.harness import Fleet, Workload, get, metric, wait_until

from lowwater.control.desired_state import wanted_fleet
from lowwater.control.fleet_reader import FleetReader
from lowwater.kafka import topics
from lowwater.runtime.times import now_us
from lowwater.status.fleet_status import describe_fleet
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

#: the issue's ten, and what a loaded machine adds
SECONDS = 15.0


def _admin(fleet: Fleet) -> AdminClient:
    return AdminClient({"bootstrap.servers": fleet.settings.kafka.bootstrap_servers})


def _delete(fleet: Fleet, topic: str) -> None:
    admin = _admin(fleet)
    admin.delete_topics([topic])[topic].result(30)


def _overview(fleet: Fleet) -> dict[str, Any]:
    """As the page shows it."""
    reader = FleetReader(fleet.settings.kafka, fleet.codec)
    try:
        reader.poll(2.0)
        return describe_fleet(wanted_fleet(fleet.settings, reader.fold), reader.fold, reader.statuses, now_us())
    finally:
        reader.close()


def _wait_for_failure(fleet: Fleet, service: Service, error: str) -> dict[str, Any]:
    shown = fleet.wait_for_status(service, error, lambda s: (s.get("error") or {}).get("error") == error, SECONDS)
    assert shown["state"] == "failed"
    assert get(service, "/health/ready")[0] == 503
    assert get(service, "/health/live")[0] == 200
    assert metric(service, "lowwater_service_ready") == 0
    assert metric(service, "lowwater_service_failed", error=error) == 1
    found: dict[str, Any] = shown["error"]
    return found


# -- topics ----------------------------------------------------------------------------------------------


def test_a_changes_topic_that_is_deleted_under_a_running_fleet_fails_both_services_by_name(
    new_fleet: NewFleet,
) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=60)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run(30)
    fleet.wait_for_all()
    topic = topics.changes(fleet.sources[0])
    _delete(fleet, topic)
    for service in (extractor, merger):
        error = _wait_for_failure(fleet, service, "TopicError")
        assert f"topic {topic} was deleted" in error["what"]

    def both_failed() -> dict[str, Any] | None:
        overview = _overview(fleet)
        source, group = overview["sources"][fleet.sources[0]], overview["groups"][fleet.group]
        return group if (source["state"], group["state"]) == ("failed", "failed") else None

    group = wait_until("the page shows both", both_failed, SECONDS)
    assert topic in group["error"]["what"]


@pytest.mark.parametrize("which", ["progress", "transactions"])
def test_a_topic_of_the_group_that_is_deleted_under_a_running_merger_fails_it_by_name(
    new_fleet: NewFleet, which: str
) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=30)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    topic = f"lowwater.{fleet.group}.{which}"
    _delete(fleet, topic)
    error = _wait_for_failure(fleet, merger, "TopicError")
    assert f"topic {topic} was deleted" in error["what"]


def test_an_offset_that_is_gone_fails_the_merger_by_name(new_fleet: NewFleet) -> None:
    """As retention would, while the merger is away."""
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=60)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    work.run(30)
    fleet.wait_for_all()
    merger.kill()
    work.run()
    source = fleet.sources[0]
    wait_until("all is published", lambda: fleet.position().threads[0].published.major > 0)
    ends = fleet.offsets(source)
    places = [TopicPartition(topics.changes(source), p, high) for p, (_, high) in ends.items()]
    admin = _admin(fleet)
    for future in admin.delete_records(places).values():
        future.result(30)
    error = _wait_for_failure(fleet, fleet.merger(), "DataGoneError")
    assert "were deleted" in error["what"]
    assert "source reset" in error["hint"]


# -- disks -----------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    mounted = tmp_path / "small"
    mounted.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip("needs a file system of its own: mount is not allowed here")
    yield mounted
    subprocess.run(["umount", "-l", str(mounted)], check=True)


def _fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            return filler


def _large(cluster: Cluster, changes: int = 20_000) -> None:
    transaction = cluster.begin(1)
    for number in range(changes):
        cluster.insert(transaction, "BANK.ACCOUNTS", (100_000 + number, 0, 0, 5))
    cluster.commit(transaction)
    cluster.heartbeat()


def test_a_full_spool_disk_fails_the_merger_until_there_is_room(new_fleet: NewFleet, small_disk: Path) -> None:
    fleet = new_fleet(
        source={"batch": {"count_max": 2000}},
        group={"memory_bytes_max": 1 << 16, "spool_directory": str(small_disk), "progress_seconds": 1.0},
    )
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=30)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    filler = _fill(small_disk)
    _large(cluster, 5_000)
    error = _wait_for_failure(fleet, merger, "DiskError")
    assert "No space left on device" in error["what"]
    assert "make room" in error["hint"]
    filler.unlink()
    fleet.wait_for_all()
    fleet.assert_good()
    fleet.wait_for_status(merger, "running", lambda s: s["state"] == "running")
    assert merger.is_running


def test_a_full_spill_disk_fails_the_extractor_until_there_is_room(new_fleet: NewFleet, small_disk: Path) -> None:
    fleet = new_fleet()
    fleet.change_source(
        config={
            "directory": str(fleet.clusters[fleet.sources[0]]),
            "spill_directory": str(small_disk),
            "spill_bytes_max": 10_000,
        }
    )
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=30)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    filler = _fill(small_disk)
    _large(cluster, 3_000)
    error = _wait_for_failure(fleet, extractor, "DiskError")
    assert "No space left on device" in error["what"]
    filler.unlink()
    fleet.wait_for_all()
    fleet.assert_good()
    fleet.wait_for_status(extractor, "running", lambda s: s["state"] == "running")


# -- who may not come in ---------------------------------------------------------------------------------


def _sasl_listener(password: str) -> tuple[int, dict[str, str]]:
    """Settings of a broker that also listens at another port, for those who know the password."""
    port, plain, controller = free_port(), free_port(), free_port()
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    jaas = f'{module} required username="lowwater" password="{password}" user_lowwater="{password}";'
    return port, {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": jaas,
        "_plain": str(plain),
    }


def _ends_with(fleet: Fleet, service: Service) -> str:
    assert service.wait(120) == 1, fleet.log_tails()
    return service.log.read_text().splitlines()[-1]


@pytest.mark.parametrize("kind", ["extractor", "merger"])
def test_wrong_sasl_credentials_end_the_start_and_are_said_to_be_wrong(
    new_kafka: NewKafka, new_fleet: NewFleet, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, settings = _sasl_listener("right")
    broker = new_kafka(port=int(settings.pop("_plain")), settings=settings)
    broker.start()
    monkeypatch.setenv("KAFKA_PASSWORD", "wrong")
    client = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "lowwater",
        "sasl.password": "${env:KAFKA_PASSWORD}",
    }
    fleet = new_fleet(bootstrap_servers=f"127.0.0.1:{port}", kafka={"client": client})
    fleet.cluster()
    line = _ends_with(fleet, getattr(fleet, kind)())
    assert "Authentication failed" in line
    assert "SASL: is kafka.client right" in line
    assert "start" not in line.split("(")[-1]
    monkeypatch.setenv("KAFKA_PASSWORD", "right")
    service = getattr(fleet, kind)()
    wait_until(
        "it runs with the right password", lambda: service.status() and get(service, "/health/ready")[0] == 200, 60
    )


def test_a_broker_that_speaks_no_tls_is_shown_as_the_reason(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    """It may be a broker that goes down in the middle of a handshake: that is waited for, and said."""
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers, kafka={"client": {"security.protocol": "SSL"}})
    fleet.cluster()
    extractor = fleet.extractor()
    shown = fleet.wait_for_status(extractor, "the reason", lambda s: s["state"] == "stalled", SECONDS)
    assert "SSL handshake failed" in shown["stalled"]["why"]
    assert "PLAINTEXT broker listener?" in get(extractor, "/health/ready")[1]


@pytest.fixture
def unknown_certificate(tmp_path: Path) -> Iterator[int]:
    """A server with a certificate that nobody has signed; its port."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=127.0.0.1"]
    done = subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            client.settimeout(5)  # one that says nothing must not keep the others waiting
            with contextlib.suppress(OSError):  # whoever does not trust us hangs up
                context.wrap_socket(client, server_side=True).close()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()[1]
    listener.close()


def test_a_certificate_that_is_not_trusted_ends_the_start_and_is_said_to_be(
    new_fleet: NewFleet, unknown_certificate: int
) -> None:
    client = {"security.protocol": "SSL"}
    fleet = new_fleet(bootstrap_servers=f"127.0.0.1:{unknown_certificate}", kafka={"client": client})
    fleet.cluster()
    line = _ends_with(fleet, fleet.extractor())
    assert "certificate verify failed" in line
    assert "TLS: is kafka.client right" in line


def test_the_clients_own_lines_are_events_of_the_log(new_fleet: NewFleet) -> None:
    fleet = new_fleet(bootstrap_servers=f"127.0.0.1:{free_port()}")
    fleet.cluster()
    extractor = fleet.extractor()
    wait_until("the client says that it cannot connect", lambda: '"kafka client"' in extractor.log.read_text(), 30)
    lines = extractor.log.read_text().splitlines()
    assert all(line.startswith("{") for line in lines), lines
    assert sum('"kafka client"' in line for line in lines) <= 6
    shown = fleet.wait_for_status(extractor, "why it does not start", lambda s: s["state"] == "stalled", 20)
    assert "no broker at" in shown["stalled"]["why"]
