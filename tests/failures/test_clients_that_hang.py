"""A client that gets no answer is replaced by a new one, also in the middle of a large transaction: nothing is torn."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowwater.errors import BusDoubtError
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.producer import TransactionalProducer
from lowwater.runtime.config import KafkaConfig
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.kafka.settings import Listener
from lowwater_fleet.runner.ports import free_port
from tests.conftest import NewFleet, NewKafka
from tests.failures.proxy import SwallowingProxy
from tests.support.brokers import FencedBroker, ThreeBrokers, freeze, thaw
from tests.support.harness import Fleet, Workload, get, wait_until

CHANGES = 15_000
#: large enough to be in the middle of for seconds
BATCHES: dict[str, Any] = {"batch": {"count_max": 300, "milliseconds_max": 10}}
RELEASES: dict[str, Any] = {"memory_bytes_max": 1 << 17, "progress_seconds": 1.0, "delete_seconds": 0.5}


@pytest.fixture
def behind_proxy(new_kafka: NewKafka) -> Iterator[tuple[str, SwallowingProxy]]:
    proxy_port, behind = free_port(), free_port()
    broker = new_kafka(listeners=(Listener("PROXY", port=behind, advertised_port=proxy_port),))
    broker.start()
    proxy = SwallowingProxy(proxy_port, behind)
    yield f"127.0.0.1:{proxy_port}", proxy
    proxy.close()


def _large(cluster: Cluster, first: int, changes: int = CHANGES) -> None:
    transaction = cluster.begin(1)
    for number in range(changes):
        cluster.insert(transaction, "BANK.ACCOUNTS", (first + number, 0, 0, 5))
    cluster.commit(transaction)
    cluster.heartbeat()


def _assert_no_data_is_blamed(fleet: Fleet) -> None:
    text = "".join(path.read_text(errors="replace") for path in (fleet.directory / "logs").glob("*.log"))
    assert "TransactionTooLargeError" not in text
    assert "Traceback" not in text


# -- one producer ----------------------------------------------------------------------------------------


def _config(servers: str) -> KafkaConfig:
    return KafkaConfig(bootstrap_servers=servers, stall_seconds=2)


def _messages(count: int) -> list[dict[str, Any]]:
    return [{"key": b"k", "value": b"v" * 1000} for _ in range(count)]


def _wait_in(where: str, producer: TransactionalProducer) -> None:
    if where == "produce":
        for _ in range(200_000):
            producer.produce("t", b"k", b"v", 0)
    elif where == "produce_batch":
        producer.produce_batch("t", _messages(150_000), 0)
    else:
        producer.produce_batch("t", _messages(100), 0)
        if where == "flush":
            producer.flush()
        else:
            producer.commit()


@pytest.mark.parametrize("where", ["produce", "produce_batch", "flush", "commit"])
def test_a_producer_whose_connection_carries_nothing_ends_with_a_doubt_and_a_new_one_goes_on(
    behind_proxy: tuple[str, SwallowingProxy], where: str
) -> None:
    servers, proxy = behind_proxy
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", num_partitions=1, replication_factor=1)])["t"].result(10)
    producer = TransactionalProducer(_config(servers), "x")
    producer.init()
    producer.begin()
    producer.produce_batch("t", _messages(100), 0)
    producer.flush()
    proxy.swallow()
    with pytest.raises(BusDoubtError, match="no answer for 2 s" if where == "commit" else "delivered nothing for 2 s"):
        _wait_in(where, producer)
    producer.close()
    successor = TransactionalProducer(_config(servers), "x")
    successor.init()
    successor.begin()
    successor.produce("t", b"k", b"new", 0)
    successor.commit()
    successor.close()
    values = [message.value() for message in read_to_end(_config(servers), "t")[0]]
    # the commit was never sent: all of the first is gone
    assert values == [b"new"]


# -- the fleet -------------------------------------------------------------------------------------------


def test_merger_whose_connections_carry_nothing_shows_it_and_goes_on_with_a_new_client(
    new_fleet: NewFleet, behind_proxy: tuple[str, SwallowingProxy]
) -> None:
    servers, proxy = behind_proxy
    fleet = new_fleet(bootstrap_servers=servers, source=BATCHES, group=RELEASES, kafka={"stall_seconds": 9})
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=30, transfers=3)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run(15)
    fleet.wait_for_all()
    _large(cluster, 100_000)
    time.sleep(2)
    proxy.swallow()
    for service in (extractor, merger):
        shown = fleet.wait_for_status(service, "stalled", lambda s: s["state"] == "stalled")
        assert shown["stalled"]["why"]
        code, text = get(service, "/health/ready")
        assert (code, text.startswith("stalled for")) == (503, True)
        assert get(service, "/health/live")[0] == 200
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    for service in (extractor, merger):
        fleet.wait_for_status(service, "running again", lambda s: s["state"] == "running")
        assert service.is_running
    _assert_no_data_is_blamed(fleet)


def _release_a_large_transaction_while(fleet: Fleet, fence: Any, unfence: Any) -> None:
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=40, transfers=3)
    services = [fleet.extractor(), fleet.merger()]
    fleet.wait_for_capture()
    work.run(20)
    fleet.wait_for_all()
    _large(cluster, 100_000)
    for pause in (1.0, 0.3):
        time.sleep(pause)
        fence()
        time.sleep(7)
        unfence()
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    assert all(service.is_running for service in services), fleet.log_tails()
    _assert_no_data_is_blamed(fleet)


def test_the_one_broker_is_fenced_in_the_middle_of_a_large_transaction(
    new_kafka: NewKafka, new_fleet: NewFleet
) -> None:
    broker = FencedBroker(new_kafka)
    try:
        fleet = new_fleet(bootstrap_servers=broker.kafka.bootstrap_servers, source=BATCHES, group=RELEASES)
        _release_a_large_transaction_while(fleet, broker.fence, broker.unfence)
    finally:
        broker.close()


def test_the_one_broker_stands_still_in_the_middle_of_a_large_transaction(
    new_kafka: NewKafka, new_fleet: NewFleet
) -> None:
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers, source=BATCHES, group=RELEASES)
    _release_a_large_transaction_while(fleet, lambda: freeze(broker), lambda: thaw(broker))


@pytest.mark.long
def test_one_of_three_brokers_is_fenced_in_the_middle_of_a_large_transaction(
    kafka_can_run: None, new_fleet: NewFleet, tmp_path: Path
) -> None:
    """The leader of the ordered topic stands still for longer than its session: another one takes its place."""
    brokers = ThreeBrokers(tmp_path)
    try:
        brokers.start()
        replicas = {"replication": 3, "min_insync_replicas": 2, "stall_seconds": 5}
        fleet = new_fleet(bootstrap_servers=brokers.bootstrap_servers, source=BATCHES, group=RELEASES, kafka=replicas)
        frozen: list[EmbeddedKafka] = []

        def fence() -> None:
            frozen.append(brokers.leader(f"lowwater.{fleet.group}.transactions"))
            freeze(frozen[-1])

        _release_a_large_transaction_while(fleet, fence, lambda: thaw(frozen.pop()))
    finally:
        brokers.close()


def test_a_merger_without_its_broker_is_stalled_and_says_why(new_kafka: NewKafka, new_fleet: NewFleet) -> None:
    broker = new_kafka()
    broker.start()
    fleet = new_fleet(bootstrap_servers=broker.bootstrap_servers)
    work = Workload(fleet.cluster(), transactions=20)
    services = [fleet.extractor(), fleet.merger()]
    fleet.wait_for_capture()
    work.run()
    fleet.wait_for_all()
    broker.kill()
    for service in services:
        # the client that is asked first names the cause in its own way; until then, the step that hangs is shown
        fleet.wait_for_status(service, "stalled by its broker", lambda s: s["state"] == "stalled" and any(
            said in s["stalled"]["why"] for said in ("does not answer", "Connect", "leaders")))  # fmt: skip
        assert get(service, "/health/ready")[0] == 503
    broker.start()
    for service in services:
        wait_until("ready again", lambda service=service: get(service, "/health/ready")[0] == 200)  # type: ignore[misc]
