"""A fleet whose source is a real PostgreSQL database."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from lowwater.lake import Lake
from lowwater_devkit.servers.postgres import EmbeddedPostgres
from tests.support.harness import Fleet, wait_until
from tests.support.postgres import Database


def source_config(database: Database, **settings: Any) -> dict[str, Any]:
    return {
        "host": "127.0.0.1",
        "port": database.server.port,
        "database": database.name,
        "user": "postgres",
        "tables": ["public.*"],
        "slot": f"lowwater_{database.name}",
        "heartbeat_seconds": 0.5,
        **settings,
    }


def postgres_fleet(
    directory: Path, bootstrap_servers: str, name: str, database: Database, *,
    lake: bool | Mapping[str, Any] = True, batch: Mapping[str, Any] | None = None, **settings: Any,
) -> Fleet:  # fmt: skip
    """`lake`: none, one on the local disk, or one that is configured so. The other settings are the source's own."""
    source = {"kind": "postgres", "config": source_config(database, **settings), **({"batch": batch} if batch else {})}
    place = {"uri": str(directory / "lake")} if lake is True else lake
    with_lake = {**place, "compact_seconds": -1} if place else None
    return Fleet(directory, bootstrap_servers, name, source=source, lake=with_lake)


def open_lake(fleet: Fleet) -> Lake:
    lake = fleet.settings.group(fleet.group).lake
    assert lake is not None
    return Lake.open(lake)


class Pgbench:
    """TPC-B on a database, in a process of its own."""

    def __init__(self, database: Database, scale: int = 1) -> None:
        self.database = database
        self._process: subprocess.Popen[bytes] | None = None
        self._run("-i", "-q", "-s", str(scale))
        # pgbench makes this one without a key; a CDC source needs one
        database.execute("ALTER TABLE pgbench_history ADD COLUMN id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY")

    def _command(self, *arguments: str) -> list[str]:
        server = self.database.server
        connection = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
        return [str(EmbeddedPostgres.bin("pgbench")), *connection, *arguments, self.database.name]

    def _run(self, *arguments: str) -> None:
        subprocess.run(self._command(*arguments), check=True, capture_output=True)

    @contextmanager
    def working(self, clients: int = 4, rate: int = 200) -> Iterator[None]:
        command = self._command("-n", "-c", str(clients), "-j", "1", "-T", "3600", "-R", str(rate))
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
            assert process.poll() is None, "pgbench has ended"
        finally:
            process.terminate()
            process.wait()


TABLES = ("pgbench_accounts", "pgbench_tellers", "pgbench_branches", "pgbench_history")


def rows_of(database: Database, table: str, order: str) -> list[tuple[Any, ...]]:
    return database.execute(f"SELECT * FROM {table} ORDER BY {order}")


def lake_state(fleet: Fleet, table: str, gsn: int | None = None) -> pa.Table:
    lake = open_lake(fleet)
    version = lake.at(gsn) if gsn is not None else lake.at()
    return version.state(f"{fleet.sources[0]}.public.{table}").arrow()


def readable_from(fleet: Fleet) -> int:
    """The gsn from which on every table of pgbench can be read; 0 if one cannot be yet."""
    try:
        lake = open_lake(fleet)
    except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
        return 0
    found = {table: c.gsn for c in lake.chain.copied for table in c.tables}
    wanted = [f"{fleet.sources[0]}.public.{table}" for table in TABLES]
    return max(found[t] for t in wanted) if all(t in found for t in wanted) else 0


def wait_until_landed(fleet: Fleet, database: Database, seconds: float = 120) -> None:
    """Until a row that is written now has come to the lake; everything before it has, too."""
    database.execute("INSERT INTO pgbench_branches (bid, bbalance) SELECT max(bid) + 1, 0 FROM pgbench_branches")
    ((wanted,),) = database.execute("SELECT max(bid) FROM pgbench_branches")

    def has_landed() -> bool:
        return wanted in lake_state(fleet, "pgbench_branches")["bid"].to_pylist()

    wait_until(f"branch {wanted} in the lake; {fleet.log_tails()}", has_landed, seconds)
