"""Real extractor, merger and Spark over one source of a run: kept up, killed, reset, asked."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from lowwater.errors import BusError, LakeError
from lowwater.kafka import topics
from lowwater.kafka.consumer import read_to_end
from lowwater.lake import Lake
from lowwater.lake.read.scans import connect
from lowwater_fleet.runner.services import Service
from tests.support.harness import Fleet, wait_until

#: small, so that a short workload makes many Kafka transactions and some transactions are larger than one
BATCH = {"count_max": 50, "milliseconds_max": 10}
GROUP = {"release_bytes_max": 65536, "delete_seconds": 1.0, "progress_seconds": 1.0}
#: landings that are a little larger take much less of the processor
LAND = {"trigger_seconds": 0.5}
#: if it does not end, the lake never passes the marker
TRIED_AGAIN = ("SourceLostError", "SnapshotGoneError", "SparkError")
START_SECONDS = 120.0
POLL_SECONDS = 0.15
#: so often those who wait look, also if the lake has nothing new
LOOK_SECONDS = 0.5
PARTS = ("extractor", "merger", "spark")


class OneSource:
    """The fleet of one run, with a lake in `directory`."""

    def __init__(
        self, directory: Path, bootstrap_servers: str, name: str, kind: str, config: dict[str, Any],
        lake: Mapping[str, Any],
    ) -> None:  # fmt: skip
        directory.mkdir(parents=True, exist_ok=True)
        place = {"uri": str(directory / "lake"), "compact_seconds": -1, **lake}
        source = {"kind": kind, "config": config, "batch": BATCH, "mark_seconds": 0.5}
        self._kind = kind
        self.fleet = Fleet(directory, bootstrap_servers, name, source=source, group=GROUP, lake=place, land=LAND)
        self.source = self.fleet.sources[0]
        self._lake: Lake | None = None
        #: one for all questions: to make one takes longer than to ask
        self._duckdb = connect()
        self.services: dict[str, Service] = {}

    # -- processes ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Until the extractor captures: what commits from now on is in its stream."""
        for part in PARTS:
            self._start(part)

        def is_captured_or_refused() -> bool:
            if found := self.errors():
                raise AssertionError(f"refused at the start: {found}")
            return self._has_position()

        self.wait(f"the first position; {self.states()}", is_captured_or_refused, START_SECONDS)

    def _has_position(self) -> bool:
        try:
            return bool(read_to_end(self.fleet.settings.kafka, topics.positions(self.source))[0])
        except BusError:
            return False  # the topic is not there yet

    def _start(self, part: str) -> None:
        starts: dict[str, Callable[[], Service]] = {
            "extractor": self.fleet.extractor, "merger": self.fleet.merger, "spark": self.fleet.lander
        }  # fmt: skip
        self.services[part] = starts[part]()

    def kill(self, part: str) -> None:
        self.services[part].kill()
        self._start(part)

    def restart(self, part: str) -> None:
        self.services[part].stop()
        self._start(part)

    def keep_up(self) -> None:
        """As a runner does: what has died is started again."""
        for service in self.services.values():
            service.supervise()

    def change_config(self, config: dict[str, Any]) -> None:
        self.fleet.set_source(self.source, self._kind, config)
        self.restart("extractor")

    def reset(self) -> None:
        """As an operator does it."""
        self.services["extractor"].stop()
        self._command("source", "reset", self.source, "--yes", "--reason", "a test")
        self._start("extractor")

    def copy(self, table: str) -> None:
        self._command("source", "copy", self.source, table, "--reason", "a test")

    def _command(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "lowwater_fleet.cli.main", *arguments, "--config", str(self.fleet.config)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, f"{' '.join(arguments)}: {done.stdout}{done.stderr}"

    def errors(self) -> dict[str, dict[str, Any]]:
        """Of services that have stopped for a person: what they say. What is tried again by itself is none."""
        found = {}
        for part, service in self.services.items():
            status = service.status() or {}
            error = status.get("error")
            if status.get("state") == "failed" and error and error["error"] not in TRIED_AGAIN:
                found[part] = error
        return found

    def copy_errors(self) -> list[str]:
        """Why copies cannot be read, as Spark's status says it: the table stays stale until a person has fixed it."""
        copies = (self.services["spark"].status() or {}).get("copies", {})
        return [table["waiting"] for table in copies.get("tables", ()) if "waiting" in table]

    def states(self) -> dict[str, Any]:
        return {part: service.status() for part, service in self.services.items()}

    def close(self) -> None:
        self.fleet.kill_all()

    # -- the lake ----------------------------------------------------------------------------------------

    def lake(self) -> Lake | None:
        """As far as it has landed; None before that."""
        if self._lake is None:
            try:
                self._lake = Lake.open(str(self.fleet.directory / "lake"))
            except LakeError:
                return None
        self._lake.refresh()
        return self._lake

    def read(self, table: str, gsn: int | None = None) -> pa.Table:
        """The state; LakeError if it cannot be read there, which is said by name."""
        lake = self.lake()
        if lake is None:
            raise LakeError("nothing has landed yet")
        if table not in lake.names():
            raise LakeError(f"the lake has no table {table!r} yet")
        with self._duckdb.cursor() as con:
            con.execute("SET TimeZone = 'UTC'")
            return lake.at(gsn).state(table).arrow(con)

    def wait(self, what: str, check: Callable[[], Any], seconds: float) -> Any:
        """`check` is asked when the lake has something new, and now and then: the services need the processor more."""
        seen, looked_at = -1, 0.0

        def up_and_checked() -> Any:
            nonlocal seen, looked_at
            self.keep_up()
            lake = self.lake()
            gsn = -1 if lake is None else lake.gsn
            if gsn == seen and time.monotonic() < looked_at + LOOK_SECONDS:
                time.sleep(POLL_SECONDS)
                return None
            seen, looked_at = gsn, time.monotonic()
            return check()

        return wait_until(what, up_and_checked, seconds)


def new_name() -> str:
    """For topics, sources and groups that no other run has."""
    return f"d{uuid.uuid4().hex[:10]}"
