"""The embedded broker: real, durable over kill -9, and the same one at the same port afterwards."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowwater.errors import BusError
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.kafka.settings import Listener
from lowwater_fleet.runner.ports import free_port

NewKafka = Callable[..., EmbeddedKafka]


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])[topic].result(10)


def write(bootstrap: str, topic: str, values: list[bytes], *, commit: bool = True) -> None:
    """One Kafka transaction."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{topic}.writer",
            "message.max.bytes": 17 * 1024 * 1024,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    producer.flush(30)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.abort_transaction(30)


def read_committed(bootstrap: str, topic: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "none",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no end of the partition within 30 s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return values
            value = message.value()
            assert isinstance(value, bytes)
            values.append(value)
    finally:
        consumer.close()


def test_committed_transactions_survive_kill_9_and_the_port_stays(new_kafka: NewKafka) -> None:
    broker = new_kafka()
    assert broker.start() is True
    address = broker.bootstrap_servers
    create_topic(address, "kept")
    write(address, "kept", [b"a", b"b"])
    write(address, "kept", [b"never"], commit=False)

    assert broker.kill() is True
    stopped = broker.status()
    assert (stopped.running, stopped.serving, stopped.pid) == (False, False, None)
    assert stopped.bootstrap_servers == address

    assert broker.start() is True
    assert broker.bootstrap_servers == address
    write(address, "kept", [b"c"])
    assert read_committed(address, "kept") == [b"a", b"b", b"c"]

    now = broker.status()
    assert (now.running, now.serving, now.pid) == (True, True, broker.pid)
    assert broker.stop() is True
    assert broker.stop() is False
    assert broker.status().running is False


def test_a_second_start_answers_already_running(new_kafka: NewKafka) -> None:
    first, second = new_kafka(), new_kafka()
    said: list[str] = []
    assert first.start(progress=said.append) is True
    assert second.start(progress=said.append) is False
    assert second.pid == first.pid
    assert [line.split(" at ")[0] for line in dict.fromkeys(said)] == [
        "formatting the data directory",
        "starting Kafka",
        "waiting until Kafka serves",
    ]


def test_two_starts_at_once_make_one_broker(new_kafka: NewKafka) -> None:
    handles = [new_kafka(), new_kafka()]
    started: list[bool] = []
    threads = [threading.Thread(target=lambda h=h: started.append(h.start())) for h in handles]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(started) == [False, True]


def test_a_pid_that_now_belongs_to_another_program_is_not_ours(new_kafka: NewKafka) -> None:
    broker = new_kafka()
    broker.directory.mkdir()
    (broker.directory / "broker.pid").write_text(str(os.getpid()))
    assert broker.pid is None
    assert broker.stop() is False  # or this test run would have ended itself


def test_a_port_that_is_taken_is_named(new_kafka: NewKafka) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BusError, match=f"port {port} is used by") as raised:
            new_kafka(port=port).start()
    assert raised.value.hint is not None


def test_a_broker_that_cannot_start_says_why(new_kafka: NewKafka) -> None:
    broker = new_kafka(settings={"num.io.threads": "none"})
    with pytest.raises(BusError, match=r"num\.io\.threads"):
        broker.start()


def test_a_stopped_process_runs_but_does_not_serve_and_can_be_stopped(new_kafka: NewKafka) -> None:
    broker = new_kafka()
    broker.start()
    pid = broker.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    status = broker.status()
    assert (status.running, status.serving) == (True, False)
    begin = time.monotonic()
    assert broker.stop(timeout_seconds=1.0) is True
    assert time.monotonic() - begin < 10
    assert broker.pid is None


def test_a_topic_is_not_made_by_asking_for_it(kafka: EmbeddedKafka, unique: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    error = admin.list_topics(unique, timeout=10).topics[unique].error
    assert error is not None
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert unique not in admin.list_topics(timeout=10).topics


def test_clients_of_an_extra_listener_are_told_the_proxys_port(new_kafka: NewKafka) -> None:
    door = Listener("PROXY", port=free_port(), advertised_port=free_port())
    broker = new_kafka(listeners=[door])
    broker.start()

    def told(port: int) -> list[int]:
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
        return [node.port for node in admin.list_topics(timeout=10).brokers.values()]

    assert told(door.port) == [door.advertised_port]
    assert told(broker.port) == [broker.port]


def test_a_message_of_16_mb_goes_through(kafka: EmbeddedKafka, unique: str) -> None:
    create_topic(kafka.bootstrap_servers, unique)
    large = os.urandom(16 * 1024 * 1024)
    write(kafka.bootstrap_servers, unique, [large])
    assert read_committed(kafka.bootstrap_servers, unique) == [large]


# -- the command line --------------------------------------------------------------------------------------


def lowwater(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "lowwater_fleet.cli.main", *words],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def half_started(broker: EmbeddedKafka) -> subprocess.Popen[str]:
    """`lowwater kafka start` at a moment when the broker runs and does not serve yet."""
    command = ["kafka", "start", "--directory", str(broker.directory), "--port", "0"]
    start = subprocess.Popen(
        [sys.executable, "-m", "lowwater_fleet.cli.main", *command], stderr=subprocess.PIPE, text=True
    )
    while broker.pid is None:
        assert start.poll() is None, start.communicate()
        time.sleep(0.01)
    return start


def test_the_command_line_starts_tells_and_stops(new_kafka: NewKafka) -> None:
    directory = str(new_kafka().directory)  # new_kafka, so that it is gone whatever happens here
    here = ("--directory", directory)
    assert lowwater("kafka", "status", *here).returncode == 1
    started = lowwater("kafka", "start", *here, "--port", "0", "--json")
    assert started.returncode == 0, started.stderr
    told = json.loads(started.stdout)
    assert told["serving"] is True
    assert told["directory"] == directory

    again = lowwater("kafka", "start", *here)
    assert again.returncode == 0
    assert "already running" in again.stdout
    assert told["bootstrap_servers"] in again.stdout

    status = lowwater("kafka", "status", *here, "--json")
    assert (status.returncode, json.loads(status.stdout)["pid"]) == (0, told["pid"])
    assert lowwater("kafka", "stop", *here).returncode == 0
    assert "not running" in lowwater("kafka", "stop", *here).stdout


def test_a_start_that_was_killed_half_way_is_taken_up_by_the_next(new_kafka: NewKafka) -> None:
    broker = new_kafka()
    first = half_started(broker)
    first.kill()
    first.communicate(timeout=30)
    pid = broker.pid
    assert pid is not None
    assert broker.start() is False
    assert broker.pid == pid


def test_missing_jars_are_one_line_and_a_hint(new_kafka: NewKafka, tmp_path: Path) -> None:
    answer = lowwater("kafka", "start", "--directory", str(new_kafka().directory), LOWWATER_JARS=str(tmp_path))
    assert answer.returncode == 2
    assert "make jars" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_ctrl_c_exits_130(new_kafka: NewKafka) -> None:
    broker = new_kafka()
    start = half_started(broker)
    start.send_signal(signal.SIGINT)
    _, said = start.communicate(timeout=30)
    assert start.returncode == 130
    assert "Traceback" not in said
