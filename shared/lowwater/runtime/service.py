"""A service that runs in sessions: each session fences its predecessor and then reads its state from Kafka.

An unknown result from Kafka ends the session, and the next one begins in the same way as after a crash: there is only
one start procedure. An error that needs an operator ends the session, too, and the service then waits for a command.

Errors and waits are visible in `/status`, readiness and metrics (health.py), short ones of Kafka only once they have
lasted for some seconds.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, ClassVar

import structlog
from prometheus_client import Counter

from lowwater import __version__
from lowwater.control.fold import ControlReader
from lowwater.errors import (
    BusDoubtError,
    BusError,
    DiskError,
    FencedError,
    LowwaterError,
    SparkError,
    StoreError,
    TopicError,
)
from lowwater.kafka.admin import Admin
from lowwater.kafka.broker_check import TopicWatch
from lowwater.kafka.topics import Topic
from lowwater.records.codec import RecordCodec
from lowwater.records.schemas import SchemaStore, open_store
from lowwater.runtime import config, logs
from lowwater.runtime.config import HttpConfig, KafkaConfig, Settings
from lowwater.status import metrics, tracing
from lowwater.status.health import Health, serve
from lowwater.status.reporter import Reporter

EXIT_STOPPED = 0
EXIT_ERROR = 1
EXIT_FENCED = 3
#: delay between two sessions, doubled after each session without progress, up to the maximum
RETRY_SECONDS, RETRY_SECONDS_MAX = 0.1, 2.0
#: delay after an error of a local disk
DISK_SECONDS = 10.0
#: how long a stopping process may wait for Kafka; Kubernetes kills after 30 s by default, our runner after 20 s
STOP_SECONDS = 8.0
#: number of new objects that starts a garbage collection
GC_OBJECTS = 50_000


class SessionService(ABC):
    """Base class of extractor, merger and the Spark service."""

    #: kind of its name in the control topic: `source` or `group`
    kind: ClassVar[str]
    #: `extractor`, `merger` or `spark`
    service: ClassVar[str]

    def __init__(self, settings: Settings, name: str, http: HttpConfig, errors: Counter) -> None:
        self.name = name
        self.health = Health()
        self._settings = settings
        self._http = http
        self._errors = errors
        self._log: Any = structlog.get_logger().bind(**{self.kind: name})
        self._is_stopping = False
        self._stop_at = 0.0
        self._admin: Admin
        self._store: SchemaStore
        self._codec: RecordCodec
        self._control: ControlReader
        self._reporter: Reporter | None = None
        self._restart = ""
        self._topic_watch: TopicWatch | None = None
        self._retry_seconds = RETRY_SECONDS
        metrics.BUILD.labels(self.service, name, __version__).set(1)
        metrics.READY.labels(self.service, name).set_function(lambda: float(self.health.readiness()[0]))
        metrics.STALLED.labels(self.service, name).set_function(self._stalled_seconds)

    def _stalled_seconds(self) -> float:
        stall = self.health.stall()
        return stall.seconds if stall is not None else 0.0

    @abstractmethod
    def _topics(self) -> list[Topic]:
        """The topics that the service needs. They are created if missing, and their settings are checked."""

    @abstractmethod
    def _run_session(self) -> bool:
        """Runs one session, beginning with fencing the predecessor. False: it was stopped. Raises BusDoubtError and
        other LowwaterErrors."""

    @property
    def is_stopping(self) -> bool:
        return self._is_stopping

    @property
    def kafka(self) -> KafkaConfig:
        return self._settings.kafka

    def run(self) -> int:
        """Runs until it is stopped; returns the exit code of the process."""
        signal.signal(signal.SIGTERM, self._on_stop)
        signal.signal(signal.SIGINT, self._on_stop)
        self._log.info("started", http_port=serve(self.health, self._http))
        self._prepare()
        try:
            return self._run_sessions()
        finally:
            if self._reporter is not None:
                self._reporter.stop()

    def _run_sessions(self) -> int:
        while not self._is_stopping:
            wanted = self._control.fold.get(self.kind, self.name).control
            if wanted.wanted.is_at_rest:
                break  # also after a failure
            self._restart = wanted.restart
            try:
                self.tick()
                if not self._run_session() and not self.is_restarted:
                    break
            except FencedError as error:
                self._failed(error)
                return EXIT_FENCED
            except BusError as error:
                self._log.warning("session ended", **error.fields())
                self._errors.labels(self.name, type(error).__name__).inc()
                self.health.trouble(str(error), error.fields())
                self._rest(self._retry_seconds)
                self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)
            except LowwaterError as error:
                self._failed(error)
                if not self._can_go_on(error):
                    self._wait_for_word()
                    self._begin_again(error)
        self._log.info("stopped")
        return EXIT_STOPPED

    def _can_go_on(self, error: LowwaterError) -> bool:
        """Whether the next session can begin without an operator's command."""
        if isinstance(error, DiskError):
            self._rest(DISK_SECONDS)
            return True
        return False

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_stopping and time.monotonic() < until:
            self.health.tick()
            time.sleep(min(0.1, seconds))

    def _begin_again(self, error: LowwaterError) -> None:
        """After an operator's command: creates and checks the topics again, as a new process does."""
        if isinstance(error, TopicError) and not self._is_stopping:
            try:
                self._open_topics()
            except LowwaterError as again:
                self._failed(again)

    @property
    def is_restarted(self) -> bool:
        """Whether an operator has requested a restart of the session."""
        return not self._is_stopping and self._control.fold.get(self.kind, self.name).control.restart != self._restart

    def _on_stop(self, _signal: int, _frame: FrameType | None) -> None:
        self._is_stopping = True
        self._stop_at = time.monotonic()

    def tick(self) -> None:
        """Called in every iteration of the loop, and while waiting for Kafka.

        Raises TopicError for a topic that was deleted, and BusDoubtError if the process has been stopping for
        STOP_SECONDS: its successor repeats the open work, as after a crash.
        """
        self.health.tick()
        self.look_at_kafka()
        if self._is_stopping and time.monotonic() - self._stop_at > STOP_SECONDS:
            raise BusDoubtError("Kafka does not answer, and this process is stopping", hint="nothing is lost")

    def look_at_kafka(self) -> None:
        """Checks that Kafka answers and that all topics exist. Raises TopicError."""
        if self._topic_watch is not None:
            self._topic_watch.look()
            if self._topic_watch.why:
                self.health.trouble(self._topic_watch.why)

    def progressed(self) -> None:
        """All available work is done. Ignored while Kafka does not answer, because that is then unknown."""
        if self._topic_watch is None or not self._topic_watch.why:
            self.health.progressed()
            self._retry_seconds = RETRY_SECONDS

    def _prepare(self) -> None:
        self._admin = Admin(self.kafka)
        self._admin.wait_for_broker(60, self._on_away)
        self._open_topics()
        self._store = open_store(self._settings, self.tick)
        self._codec = self._store.record_codec()
        self._control = ControlReader(self.kafka, self._codec)
        self._reporter = Reporter(self.kafka, self._codec, self.service, self.name, self._said)
        self._reporter.start()

    def _open_topics(self) -> None:
        wanted = self._topics()
        self._admin.ensure(wanted)
        self._topic_watch = TopicWatch(self.kafka, self._watched(wanted))

    def _watched(self, wanted: list[Topic]) -> list[str]:
        """Topics whose deletion ends the session: those that it reads or writes."""
        return [topic.name for topic in wanted]

    def _on_away(self, why: str) -> None:
        self.health.tick()
        self.health.trouble(why)
        self.health.not_ready(why)
        self._log.warning("waiting", what=why)

    def _said(self) -> dict[str, Any]:
        is_ready, why = self.health.readiness()
        is_live, tick = self.health.live()
        return {**self.health.status(), "ready": is_ready, "ready_why": why, "live": is_live, "live_why": tick}

    def _failed(self, error: LowwaterError) -> None:
        self._log.error("failed", **error.fields())
        self._errors.labels(self.name, type(error).__name__).inc()
        self.health.not_ready(str(error))
        # evaluated at each scrape: 0 as soon as the service is ready again
        metrics.FAILED.clear()
        failed = metrics.FAILED.labels(self.service, self.name, type(error).__name__)
        failed.set_function(lambda: float(not self.health.readiness()[0]))
        needs_proof = isinstance(error, (DiskError, SparkError, StoreError))
        self.health.failed(error.fields(), {self.kind: self.name}, needs_proof=needs_proof)

    def _wait_for_word(self) -> None:
        version = self._control.fold.get(self.kind, self.name).version
        while not self._is_stopping and self._control.fold.get(self.kind, self.name).version == version:
            self.health.tick()
            self._control.poll()
            time.sleep(0.2)

    def _on_wait(self, what: str) -> None:
        self._log.warning("waiting", what=what)
        self.health.not_ready(what)
        self.health.trouble(what)


def http_of(configured: HttpConfig, port: int | None) -> HttpConfig:
    """The address to listen on; `port`, from the command line, overrides the config."""
    return configured if port is None else HttpConfig(host=configured.host, port=port)


def run_service(
    program: str, about: str, kind: str, make: Callable[..., SessionService], flags: Mapping[str, str] | None = None
) -> None:
    """The `main` of a SessionService; `flags` (name → help) become options and are passed to `make` by name."""
    parser = argparse.ArgumentParser(prog=program, description=about)
    parser.add_argument("--config", help="the fleet's YAML file (default: $LOWWATER_CONFIG)")
    parser.add_argument(f"--{kind}", dest="name", required=True, help=f"the {kind}, by its name in the config")
    parser.add_argument("--http-port", type=int, help="overrides http.port of the config; 0: any free port")
    for flag, about_flag in (flags or {}).items():
        parser.add_argument(f"--{flag}", action="store_true", help=about_flag)
    arguments = parser.parse_args()
    chosen = {flag: getattr(arguments, flag) for flag in flags or {}}
    try:
        settings = config.load(arguments.config)
        logs.configure(settings)
        tracing.configure(program.removeprefix("lowwater-"))
        service = make(settings, arguments.name, arguments.http_port, **chosen)
        collect_rarely()
        code = service.run()
    except LowwaterError as error:
        sys.stderr.write(f"{program}: {error}\n")
        code = EXIT_ERROR
    sys.exit(code)


def collect_rarely() -> None:
    """Makes garbage collection rare: batches consist of many small objects without reference cycles."""
    gc.freeze()
    gc.set_threshold(GC_OBJECTS, 20, 100)
