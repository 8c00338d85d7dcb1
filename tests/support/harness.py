"""A small fleet on a real broker for tests: start, kill, wait, compare with the source's own history."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from copy import copy, deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from lowwater.errors import BusError, ConfigError
from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer, consumer_settings, read_to_end
from lowwater.lake import Lake
from lowwater.records.codec import RecordCodec
from lowwater.records.schemas import SchemaStore, open_store
from lowwater.records.types import Position, Progress
from lowwater.runtime import config
from lowwater.runtime.config import Settings
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_devkit.simulated_rac.workload import BANK, Bank, BankOptions
from lowwater_devkit.verify.history import Decoder, Id, Verdict, read_history, verify
from lowwater_devkit.verify.ordered_topic import Ordered, read_ordered
from lowwater_fleet.kafka.jars import find_jars
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service

WAIT_SECONDS = 150.0


def wait_until(what: str, check: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """The first true answer of `check`; a failed wait says what it waited for."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.05)
    return found


def skip_without_spark() -> None:
    try:
        find_jars("spark")
    except ConfigError as error:
        pytest.skip(str(error))


def get(service: Service, path: str) -> tuple[int, str]:
    """Status code and text of one of the service's pages."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{service.http_port}{path}", timeout=5) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def metric(service: Service, name: str, **labels: str) -> float | None:
    """The value of one metric, by name and the labels that are given."""
    wanted = [f'{label}="{value}"' for label, value in labels.items()]
    for line in get(service, "/metrics")[1].splitlines():
        if line.startswith((f"{name}{{", f"{name} ")) and all(w in line for w in wanted):
            return float(line.rsplit(" ", 1)[1])
    return None


#: a JVM that lives for seconds does better not to optimise
SHORT_LIVED = "-XX:TieredStopAtLevel=1"
#: quick to start and small: the tests' landings are
LAND: dict[str, Any] = {
    "trigger_seconds": 0.2,
    "spark": {"spark.master": "local[2]", "spark.driver.memory": "1g", "spark.driver.defaultJavaOptions": SHORT_LIVED},
}


class Fleet:
    """Sources of kind simulated_rac, one group over them, and the processes."""

    def __init__(
        self, directory: Path, bootstrap_servers: str, name: str, *, sources: int = 1, partitions: int = 3,
        source: Mapping[str, Any] | None = None, group: Mapping[str, Any] | None = None,
        kafka: Mapping[str, Any] | None = None, registry: str = "",
        lake: Mapping[str, Any] | None = None, land: Mapping[str, Any] | None = None,
        control: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.directory = directory
        self.group = f"{name}-group"
        self.sources = [f"{name}-{number}" for number in range(1, sources + 1)]
        self.clusters: dict[str, Path] = {s: directory / s for s in self.sources}
        raw: dict[str, Any] = {
            "kafka": {"bootstrap_servers": bootstrap_servers, **(kafka or {})},
            "sources": {
                s: {
                    "kind": "simulated_rac",
                    "partitions": partitions,
                    "config": {"directory": str(self.clusters[s]), "spill_directory": str(directory / "spill")},
                    "mark_seconds": 0.2,
                    "http": {"port": free_port()},
                    **(source or {}),
                }
                for s in self.sources
            },
            "groups": {
                self.group: {
                    "sources": self.sources,
                    "spool_directory": str(directory / "spool"),
                    "http": {"port": free_port()},
                    **(group or {}),
                    **({"lake": lake, "land": {**LAND, "http": {"port": free_port()}, **(land or {})}} if lake else {}),
                }
            },
            "state_directory": str(directory / "state"),
            "control": {"port": free_port(), **(control or {})},
        }
        if registry:
            raw["schema_registry"] = {"url": registry}
        self.config = directory / f"{name}.yaml"
        self._raw = raw
        self.settings: Settings
        self._save()
        self._started: list[Service] = []
        self._clusters: list[Cluster] = []
        self._store: SchemaStore | None = None
        self._codec: RecordCodec | None = None

    def _save(self) -> None:
        self.config.write_text(yaml.safe_dump(self._raw))
        self.settings = config.load(self.config)

    def change_source(self, **settings: Any) -> None:
        """Other settings for every source, as of its next start."""
        for source in self._raw["sources"].values():
            source.update(settings)
        self._save()

    def add_source(self, source: str, kind: str, config: Mapping[str, Any]) -> None:
        """One more in the group, with the settings of the first."""
        first = self._raw["sources"][self.sources[0]]
        more = {"kind": kind, "config": dict(config), "http": {"port": free_port()}}
        self._raw["sources"][source] = {**first, **more}
        self._raw["groups"][self.group]["sources"] = [*self.sources, source]
        self._save()

    def change_group(self, **settings: Any) -> None:
        """Other settings for the group, as of the next start of its services."""
        self._raw["groups"][self.group].update(settings)
        self._save()

    def set_source(self, source: str, kind: str, config: Mapping[str, Any]) -> None:
        """One source of another kind."""
        self._raw["sources"][source] |= {"kind": kind, "config": dict(config)}
        self._save()

    # -- processes ---------------------------------------------------------------------------------------

    def extractor(self, source: str | None = None, **environment: str) -> Service:
        name = source or self.sources[0]
        return self._start(services.extractor(self.settings, self.config, name, self.directory / "logs"), environment)

    def merger(self, **environment: str) -> Service:
        service = services.merger(self.settings, self.config, self.group, self.directory / "logs")
        return self._start(service, environment)

    def lander(self, **environment: str) -> Service:
        service = services.lander(self.settings, self.config, self.group, self.directory / "logs")
        return self._start(service, environment)

    def second_group(self) -> Fleet:
        """Another group, with nothing merged yet, over the same sources."""
        other = copy(self)
        other.group = f"{self.group}-again"
        other.config = self.directory / f"{other.group}.yaml"
        other._raw = deepcopy(self._raw)
        settings = other._raw["groups"].pop(self.group)
        other._raw["groups"][other.group] = {**settings, "http": {"port": free_port()}}
        other._save()
        return other

    def control(self, port: int | None = None, **environment: str) -> Service:
        """The API; at another port it is another replica."""
        service = services.control(self.settings, self.config, self.directory / "logs")
        if port is not None:
            service.command += ["--port", str(port)]
            service.http_port = port
        service.start(environment)
        self._started.append(service)
        return service

    def _start(self, service: Service, environment: Mapping[str, str]) -> Service:
        if any(s.name == service.name and s.is_running for s in self._started):
            service.command += ["--http-port", "0"]
        service.start(environment)
        self._started.append(service)
        return service

    def kill_all(self) -> None:
        for service in self._started:
            service.kill()
        for cluster in self._clusters:
            cluster.close()

    # -- what came out -----------------------------------------------------------------------------------

    @property
    def store(self) -> SchemaStore:
        if self._store is None:
            self._store = open_store(self.settings)
        return self._store

    @property
    def codec(self) -> RecordCodec:
        if self._codec is None:
            self._codec = self.store.record_codec()
        return self._codec

    def ordered(self) -> list[Ordered]:
        return read_ordered(self.settings.kafka, self.codec, self.group)

    def histories(self) -> dict[str, dict[Id, dict[str, Any]]]:
        return {source: read_history(path / "history.jsonl") for source, path in self.clusters.items()}

    def wait_for_all(self, seconds: float = WAIT_SECONDS) -> None:
        """Until as many transactions were released as the sources have committed."""
        wanted = sum(len(history) for history in self.histories().values())
        ends = (self.codec.headers["Commit"], self.codec.headers["Skipped"])
        reader = AssignedConsumer(self.settings.kafka, "harness", {(topics.transactions(self.group), 0): 0})
        found = 0

        def released() -> bool:
            nonlocal found
            found += sum((m.value() or b"")[:5] in ends for m in reader.consume(10_000, 0.1))
            return found >= wanted

        try:
            wait_until(f"{wanted} transactions in the ordered topic", released, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}, found {found}; {self.verdict()}; {self.log_tails()}") from error
        finally:
            reader.close()

    def verdict(self, decode: bool = True) -> Verdict:
        return verify(self.ordered(), self.histories(), Decoder(self.store) if decode else None)

    def assert_good(self) -> Verdict:
        verdict = self.verdict()
        assert verdict.is_good, f"{verdict}: {verdict.details}"
        return verdict

    def log_tails(self) -> str:
        tails = []
        for path in sorted((self.directory / "logs").glob("*.log")):
            tails.append(f"\n--- {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-15:]))
        return "".join(tails)

    def wait_for_status(
        self, service: Service, what: str, check: Callable[[dict[str, Any]], Any] = bool, seconds: float = 40
    ) -> dict[str, Any]:
        """What the service shows of itself, once that is as wanted."""
        seen: dict[str, Any] = {}

        def look() -> bool:
            seen.clear()
            seen.update(service.status() or {})
            return bool(seen) and bool(check(seen))

        try:
            wait_until(what, look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; {service.name} shows {seen}; {self.log_tails()}") from error
        return seen

    # -- what the topics hold ----------------------------------------------------------------------------

    def progress(self, group: str | None = None) -> Progress:
        messages, _ = read_to_end(self.settings.kafka, topics.progress(group or self.group))
        return self.codec.decode(messages[-1].value() or b"", Progress)

    def position(self, source: str | None = None) -> Position:
        messages, _ = read_to_end(self.settings.kafka, topics.positions(source or self.sources[0]))
        return self.codec.decode(messages[-1].value() or b"", Position)

    def changes(self, source: str | None = None) -> list[tuple[int, bytes, bytes]]:
        """All that is left of a changes topic: partition, key, value."""
        name = source or self.sources[0]
        found: list[tuple[int, bytes, bytes]] = []
        for partition in range(self.settings.source(name).partitions):
            messages, _ = read_to_end(self.settings.kafka, topics.changes(name), partition)
            found += [(partition, m.key() or b"", m.value() or b"") for m in messages]
        return found

    def offsets(self, source: str | None = None) -> dict[int, tuple[int, int]]:
        """Of each partition of a changes topic: the first offset that is left, and the end."""
        name = source or self.sources[0]
        consumer = Consumer(consumer_settings(self.settings.kafka, "harness"))
        try:
            places = [TopicPartition(topics.changes(name), p) for p in range(self.settings.source(name).partitions)]
            found = {p.partition: consumer.get_watermark_offsets(p, timeout=10) for p in places}
            return {partition: (int(low), int(high)) for partition, (low, high) in found.items()}
        finally:
            consumer.close()

    def order(self, group: str | None = None) -> list[tuple[int, str, int, str]]:
        """What a group released: gsn, source, thread, txid."""
        found = []
        for transaction in read_ordered(self.settings.kafka, self.codec, group or self.group):
            head = transaction.commit or transaction.skipped
            assert head is not None, transaction.torn
            found.append((transaction.gsn, head.source, head.thread, head.txid))
        return found

    # -- sources -----------------------------------------------------------------------------------------

    def wait_for_versions(self, readable_from: Callable[[], int], versions: int) -> None:
        """Until tables can be read, and twice as many transactions have landed behind that.

        On a machine that has much to do a copy takes long: what is checked must not hang on that.
        """
        first: int = wait_until(f"all tables to be readable; {self.log_tails()}", readable_from, 900)
        lake = str(self.directory / "lake")
        wait_until(
            f"{versions} versions behind gsn {first}; {self.log_tails()}",
            lambda: Lake.open(lake).gsn > first + 2 * versions, 600,
        )  # fmt: skip

    def cluster(self, source: str | None = None, threads: int = 2, **options: Any) -> Cluster:
        """A simulated cluster for one source; it is empty, so that capture can begin before the work does."""
        directory = self.clusters[source or self.sources[0]]
        options = {"tables": BANK, "history_file": True, "log_bytes": 1 << 16, **options}
        cluster = Cluster(directory, threads=threads, **options)
        self._clusters.append(cluster)
        return cluster

    def wait_for_capture(self, source: str | None = None) -> None:
        """Until the extractor has written its first position: what commits from now on is captured."""
        name = source or self.sources[0]

        def has_position() -> bool:
            try:
                return bool(read_to_end(self.settings.kafka, topics.positions(name))[0])
            except BusError:
                return False  # the topic is not there yet

        wait_until(f"the first position of {name}; {self.log_tails()}", has_position)


class Workload:
    """The bank on a cluster, a piece at a time."""

    def __init__(self, cluster: Cluster, transactions: int = 300, **options: Any) -> None:
        self.cluster = cluster
        self.bank = Bank(cluster, BankOptions(**{"accounts": 200, "transactions": transactions, **options}))
        self._steps = self.bank.steps()

    def step(self, transactions: int) -> bool:
        """Some more transactions; False once all are done."""
        wanted = self.bank.started + transactions
        for _ in self._steps:
            if self.bank.started >= wanted:
                return True
        self.cluster.heartbeat()
        return False

    def run(self, until: int | None = None) -> None:
        """Up to this many transactions in all, or to the end. A heartbeat lets nothing wait for a silent thread."""
        if until is None:
            while self.step(1000):
                pass
        else:
            self.step(until - self.bank.started)
        self.cluster.heartbeat()
