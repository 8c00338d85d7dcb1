"""A Kafka broker (KRaft, one node) from the jars, for the demo, tests and experiments.

    <directory>/broker.json        cluster id and port: chosen once, the same after restarts
    <directory>/server.properties  written at every start
    <directory>/data/              the broker's data
    <directory>/broker.log         its log
    <directory>/broker.pid

The broker is a separate process that outlives the command that started it.
"""

from __future__ import annotations

import base64
import fcntl
import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from lowwater.errors import BusError, ConfigError
from lowwater.runtime import class_archive
from lowwater_fleet.kafka.jars import archive_of, find_jars, find_java
from lowwater_fleet.kafka.settings import HOST, Listener, java_log_options, server_properties
from lowwater_fleet.runner.ports import free_port, is_free, is_listening
from lowwater_fleet.runner.process import Daemon, StartStop

PORT_DEFAULT = 9092
HEAP_MB_DEFAULT = 512
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 20.0
LOG_BYTES_MAX = 16 * 1024 * 1024  # at a start, a longer broker.log becomes broker.log.1

Progress = Callable[[str], None]


@dataclass(frozen=True)
class KafkaStatus:
    """`running`: the process exists. `serving`: it answers, has our cluster id, and can create a topic."""

    directory: str
    bootstrap_servers: str | None
    running: bool
    serving: bool
    pid: int | None
    topics: int | None
    log: str


@dataclass(frozen=True)
class _Identity:
    """Chosen once for a directory. The cluster id distinguishes our broker from another one at the same port."""

    cluster_id: str
    port: int


class EmbeddedKafka(StartStop):
    """One broker with its data in `directory`.

    `port`: None is the port stored in the directory, or 9092 the first time; 0 is the stored one, or a free one
    the first time; any other number is that port. `settings`: broker settings that override the defaults.
    """

    def __init__(
        self,
        directory: Path | str,
        *,
        port: int | None = None,
        heap_mb: int = HEAP_MB_DEFAULT,
        listeners: Sequence[Listener] = (),
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
    ) -> None:
        self.directory = Path(directory).resolve()
        self.log = self.directory / "broker.log"
        self._java_options = list(java_options)
        self._wanted_port = port
        self._heap_mb = heap_mb
        self._listeners = tuple(listeners)
        self._settings = dict(settings or {})
        self._chosen: _Identity | None = None
        self._properties = self.directory / "server.properties"
        self._daemon = Daemon(self.directory / "broker.pid", ("kafka.Kafka", str(self._properties)))

    @property
    def pid(self) -> int | None:
        """None if the broker does not run."""
        return self._daemon.pid

    @property
    def port(self) -> int:
        return self._identity().port

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self, *, timeout_seconds: float = START_SECONDS_MAX, progress: Progress | None = None) -> bool:
        """Start the broker and wait until it serves. True if this call started it, False if it was already running."""
        say = progress or _say_nothing
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"Kafka's directory cannot be created: {error}", hint="choose another with --directory"
            ) from error
        with self._one_start_at_a_time():
            started = self.pid is None
            if started:
                self._launch(say)
            self._wait_until_serving(timeout_seconds, say)
        return started

    def stop(self, *, timeout_seconds: float = STOP_SECONDS_MAX) -> bool:
        """Stop gracefully, with SIGKILL after the timeout. False if it was not running."""
        return self._daemon.stop(timeout_seconds=timeout_seconds)

    def kill(self) -> bool:
        """`kill -9`. False if it was not running."""
        return self._daemon.kill()

    def status(self) -> KafkaStatus:
        known = self._identity_file.exists()
        pid = self.pid
        topics: int | None = None
        if pid is not None and is_listening(self.port, HOST):
            try:
                topics = self._ask(timeout_seconds=3.0)
            except (KafkaException, BusError):
                topics = None  # it runs, but does not serve (yet)
        return KafkaStatus(
            directory=str(self.directory),
            bootstrap_servers=self.bootstrap_servers if known else None,
            running=pid is not None,
            serving=topics is not None,
            pid=pid,
            topics=topics,
            log=str(self.log),
        )

    # -- starting ------------------------------------------------------------------------------------------

    def _launch(self, say: Progress) -> None:
        java, jars = find_java(), find_jars("kafka")
        identity = self._identity()
        self._check_ports(identity.port)
        self._keep(identity)
        self._write_properties(identity.port)
        command = [str(java), "-cp", f"{jars}/*", *java_log_options()]
        if not (self.directory / "data" / "meta.properties").exists():  # written last by a format that finished
            say("formatting the data directory")
            self._format([*command, *class_archive.options(archive_of(jars))], identity.cluster_id)
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.rename(self.log.with_suffix(".log.1"))
        say(f"starting Kafka at {self.bootstrap_servers}")
        heap = f"-Xmx{self._heap_mb}m"
        options = [heap, *class_archive.options(archive_of(jars)), *self._java_options]
        self._daemon.start([*command, *options, "kafka.Kafka", str(self._properties)], log=self.log)

    def _check_ports(self, port: int) -> None:
        for wanted in (port, *(listener.port for listener in self._listeners)):
            if not is_free(wanted, HOST):
                raise BusError(
                    f"port {wanted} is used by another program, so Kafka cannot listen on it",
                    hint="stop that program (`ss -ltnp` shows it), or choose another port with --port",
                )

    def _write_properties(self, port: int) -> None:
        taken = (port, *(listener.port for listener in self._listeners))
        text = server_properties(
            self.directory / "data",
            port=port,
            controller_port=free_port(but_not=taken),  # only the broker itself uses it, so any port is fine
            listeners=self._listeners,
            settings=self._settings,
        )
        self._properties.write_text(text)

    def _format(self, command: list[str], cluster_id: str) -> None:
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        quick = "-XX:TieredStopAtLevel=1"  # it runs for a second only: optimization does not pay off
        done = subprocess.run(
            [*command, quick, *tool, "-t", cluster_id, "-c", str(self._properties)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise BusError(
                f"Kafka could not format {self.directory}: {_reason(done.stdout + done.stderr)}",
                hint="fix the cause; if the data is not needed, remove the directory and start again",
            )

    def _wait_until_serving(self, timeout_seconds: float, say: Progress) -> None:
        begin = time.monotonic()
        last = "it does not accept connections yet"
        while time.monotonic() - begin < timeout_seconds:
            if self.pid is None:
                raise BusError(f"Kafka ended during startup: {self._last_words()}", hint=f"see {self.log}")
            if is_listening(self.port, HOST):
                try:
                    self._ask(timeout_seconds=2.0)
                except KafkaException as error:
                    last = str(error.args[0])
                else:
                    return
            say(f"waiting until Kafka serves at {self.bootstrap_servers}")
            time.sleep(0.1)
        raise BusError(f"Kafka did not serve within {timeout_seconds:.0f} s: {last}", hint=f"see {self.log}")

    def _ask(self, *, timeout_seconds: float) -> int:
        """The number of topics. Raises BusError if another cluster answers, KafkaException if no topic can be created.

        Metadata requests alone are not enough: they are answered before this broker can lead a partition.
        """
        identity = self._identity()
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        metadata = admin.list_topics(timeout=timeout_seconds)
        if str(metadata.cluster_id) != identity.cluster_id:
            raise BusError(
                f"another Kafka cluster ({metadata.cluster_id}) answers at {self.bootstrap_servers}",
                hint="stop that broker, or choose another port with --port",
            )
        probe = NewTopic("probe", num_partitions=1, replication_factor=1)
        answers = admin.create_topics([probe], validate_only=True, request_timeout=timeout_seconds)
        answers["probe"].result()
        return len(metadata.topics)

    def _last_words(self) -> str:
        return _reason(self.log.read_text(errors="replace") if self.log.exists() else "")

    # -- stored in the directory ---------------------------------------------------------------------------

    @property
    def _identity_file(self) -> Path:
        return self.directory / "broker.json"

    def _identity(self) -> _Identity:
        """The identity stored in the directory, or the one that the first start will store."""
        kept: _Identity | None = None
        if self._identity_file.exists():
            kept = _Identity(**json.loads(self._identity_file.read_text()))
            if not self._wanted_port or self._wanted_port == kept.port or self.pid is not None:
                return kept
        if self._chosen is None:
            port = PORT_DEFAULT if self._wanted_port is None else self._wanted_port or free_port()
            if not 0 < port < 65536:
                raise ConfigError(f"{port} is not a port", hint="choose 1024 to 65535, or 0 for a free one")
            self._chosen = _Identity(cluster_id=kept.cluster_id if kept else _new_cluster_id(), port=port)
        return self._chosen

    def _keep(self, identity: _Identity) -> None:
        unfinished = self._identity_file.with_suffix(".tmp")
        unfinished.write_text(json.dumps(vars(identity)))
        unfinished.replace(self._identity_file)

    @contextmanager
    def _one_start_at_a_time(self) -> Iterator[None]:
        """Two concurrent commands must not start two brokers. The kernel releases the lock if its holder dies."""
        with (self.directory / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _new_cluster_id() -> str:
    """A cluster id as Kafka creates them: 22 characters. Not starting with a dash, which would look like an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _reason(said: str) -> str:
    """The last line with an exception or error, without its stack trace; else the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("\tat ")]
    causes = [line for line in lines[-200:] if "Exception" in line or "Error" in line]
    return (causes or lines or ["there is no output"])[-1]


def _say_nothing(_: str) -> None:
    return
