"""A bank on a Turso file all the while; the extractor, the writer and, with a lake, merger and Spark killed with -9.

At the end the changes add up to the file, each transaction came once, and the books balance at every version.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lowwater.errors import BusError
from lowwater.lake import Lake
from lowwater.runtime.failpoints import FAIL_POINTS
from lowwater_devkit.verify.history import Decoder
from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.services import Service
from tests.support.harness import Fleet, skip_without_spark, wait_until
from tests.support.turso_bank import ACCOUNTS, CENTS, Writer, make
from tests.support.turso_file import TursoFile

NAMED = "turso.file_named"
POINTS = [name for name in FAIL_POINTS if name.startswith("turso.") and name != NAMED]
OF_ALL = ("position_produced", "committed")
KEYS = {"accounts": "id", "entries": "id", "orders": "code"}
BATCH = {"count_max": 50, "milliseconds_max": 10}
TOTAL = ACCOUNTS * CENTS


class Bank:
    """A fleet of one source over a file, and the process that writes to it."""

    def __init__(
        self, directory: Path, kafka: EmbeddedKafka, name: str, *, lake: bool = False, **settings: Any
    ) -> None:
        self.file: TursoFile = make(directory / "bank.db")
        self.writer = Writer(self.file.path, 0.01)
        config = {"path": str(self.file.path), "tables": ["main.*"], "prune": True, "prune_seconds": 0.1, **settings}
        source = {"kind": "turso", "batch": BATCH, "config": config}
        with_lake = {"uri": str(directory / "lake"), "compact_seconds": -1} if lake else None
        self.fleet = Fleet(directory, kafka.bootstrap_servers, name, source=source, lake=with_lake)

    def rows(self) -> dict[str, dict[Any, tuple[Any, ...]]]:
        return {table: {row[0]: row for row in self.file.ask(f"SELECT * FROM {table}")} for table in KEYS}

    def close(self) -> None:
        self.writer.kill()
        self.fleet.kill_all()
        self.file.close()


@pytest.fixture
def bank(kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Bank]:
    made = Bank(tmp_path, kafka, unique, copy_tables=False)
    yield made
    made.close()


def _replayed(bank: Bank) -> int:
    """The last order that was released; every transaction is whole, in its order, and leaves the books in balance."""
    decode = Decoder(bank.fleet.store)
    cents = dict.fromkeys(range(1, ACCOUNTS + 1), CENTS)
    last = 0
    ordered = bank.fleet.ordered()
    assert [t.gsn for t in ordered] == list(range(1, len(ordered) + 1))
    for transaction in ordered:
        assert not transaction.torn, transaction.torn
        assert transaction.commit is not None
        assert transaction.commit.order.major > last, "each once, and in the order of commits"
        last = transaction.commit.order.major
        for value in transaction.values:
            op, table, before, after = decode(value)
            if table == "main.accounts":
                assert op == "u"
                assert before[2] == cents[before[0]], "nothing is missing in between"
                cents[after[0]] = after[2]
        assert sum(cents.values()) == TOTAL, f"gsn {transaction.gsn}"
    found = {number: row[2] for number, row in bank.rows()["accounts"].items()}
    return last if found == cents else 0


def _check(bank: Bank) -> None:
    def is_there() -> int:
        try:
            return _replayed(bank)
        except BusError:
            return 0  # the topic is not there yet

    wait_until(f"the ordered topic to add up to the file; {bank.fleet.log_tails()}", is_there, 60)


@pytest.mark.timeout(300)
def test_killed_at_every_step(bank: Bank) -> None:
    fleet = bank.fleet
    # once, at the very first start
    assert fleet.extractor(LOWWATER_FAIL_AT=NAMED).wait(60) == -signal.SIGKILL, fleet.log_tails()
    first = fleet.extractor()
    fleet.wait_for_capture()
    first.kill()
    fleet.merger()
    bank.writer.start()
    for point in [*POINTS, *(f"extractor.{name}:3" for name in OF_ALL)]:
        service = fleet.extractor(LOWWATER_FAIL_AT=point)
        assert service.wait(60) == -signal.SIGKILL, f"{point} was not reached; {fleet.log_tails()}"
        bank.writer.kill()
        bank.writer.start()
    fleet.extractor()
    time.sleep(1)
    bank.writer.kill()
    _check(bank)

    def is_pruned() -> bool:
        ((kept, last),) = bank.file.ask("SELECT count(*), max(change_id) FROM turso_cdc")
        return bool(kept < last / 2)

    wait_until("what is durable to be pruned", is_pruned, 60)


# -- with a lake -----------------------------------------------------------------------------------------


def _lake_rows(fleet: Fleet) -> dict[str, dict[Any, Any]]:
    at = Lake.open(str(fleet.directory / "lake")).at()
    found = {}
    for table, key in KEYS.items():
        rows = at.state(f"{fleet.sources[0]}.main.{table}").arrow().to_pylist()
        found[table] = {row[key]: row for row in rows}
    return found


def _is_landed(bank: Bank) -> bool:
    try:
        found = _lake_rows(bank.fleet)
    except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
        return False
    rows = bank.rows()
    if any(found[table].keys() != rows[table].keys() for table in KEYS):
        return False
    cents = {number: row["cents"] for number, row in found["accounts"].items()}
    return cents == {number: row[2] for number, row in rows["accounts"].items()}


def _readable_from(fleet: Fleet) -> int:
    """The gsn from which on the accounts can be read; 0 if they cannot be yet."""
    try:
        copied = Lake.open(str(fleet.directory / "lake")).chain.copied
    except Exception:  # noqa: BLE001  (nothing has landed yet: whatever that looks like)
        return 0
    return max((c.gsn for c in copied if f"{fleet.sources[0]}.main.accounts" in c.tables), default=0)


def _check_versions(fleet: Fleet) -> int:
    """From the version on at which the accounts are readable, every one of them balances."""
    lake = Lake.open(str(fleet.directory / "lake"))
    name = f"{fleet.sources[0]}.main.accounts"
    first = _readable_from(fleet)
    state = {row["id"]: row["cents"] for row in lake.at(first).state(name).arrow().to_pylist()}
    assert sum(state.values()) == TOTAL
    changes = lake.changes(name, after_gsn=first, columns=["_gsn", "_seq", "id", "cents"]).arrow().to_pylist()
    changes.sort(key=lambda row: (row["_gsn"], row["_seq"]))
    versions = 0
    for number, row in enumerate(changes):
        state[row["id"]] = row["cents"]
        if number + 1 == len(changes) or changes[number + 1]["_gsn"] != row["_gsn"]:
            assert sum(state.values()) == TOTAL, f"gsn {row['_gsn']}"
            versions += 1
    return versions


def _run(bank: Bank, kills: int, versions: int) -> None:
    seed = int(os.environ.get("LOWWATER_SEED", "1"))
    print(f"seed {seed}")
    rng = random.Random(seed)
    fleet = bank.fleet
    starts = {"extractor": fleet.extractor, "merger": fleet.merger, "spark": fleet.lander}
    running: dict[str, Service] = {name: start() for name, start in starts.items()}
    fleet.wait_for_capture()
    bank.writer.start()
    for number in range(kills):
        time.sleep(rng.uniform(0.5, 5))
        name = ("extractor", "writer", "spark", "merger")[number] if number < 4 else rng.choice([*starts, "writer"])
        if name == "writer":
            bank.writer.kill()
            bank.writer.start()
        else:
            running[name].kill()
            running[name] = starts[name]()
    fleet.wait_for_versions(lambda: _readable_from(fleet), versions)
    bank.writer.kill()
    wait_until(f"the lake to be the file; {fleet.log_tails()}", lambda: _is_landed(bank), 600)
    assert _check_versions(fleet) > versions


@pytest.fixture
def landed_bank(kafka: EmbeddedKafka, tmp_path: Path, unique: str) -> Iterator[Bank]:
    skip_without_spark()
    made = Bank(tmp_path, kafka, unique, lake=True, chunk_rows=20, audit_seconds=1)
    yield made
    made.close()


@pytest.mark.long
@pytest.mark.timeout(1500)
def test_the_lake_is_the_file_and_every_version_balances(landed_bank: Bank) -> None:
    _run(landed_bank, kills=6, versions=100)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_same_with_many_kills(landed_bank: Bank) -> None:
    _run(landed_bank, kills=40, versions=1000)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_rows_that_are_in_no_log_are_copied_again_each_time(landed_bank: Bank) -> None:
    """Also while the log stands still: what is found at one end of it twice has two orders."""
    fleet = landed_bank.fleet
    landed_bank.file.do("INSERT INTO orders VALUES ('seen', 2, 0)", "INSERT INTO entries VALUES (1, 2, 0, NULL)")
    for start in (fleet.extractor, fleet.merger, fleet.lander):
        start()
    wait_until(f"the lake to be the file; {fleet.log_tails()}", lambda: _is_landed(landed_bank), 300)
    landed_bank.file.do("PRAGMA capture_data_changes_conn('off')")
    for number in (1, 2):
        landed_bank.file.do(f"INSERT INTO orders VALUES ('unseen {number}', 2, 0)")
        what = f"what was written without capture, time {number}; {fleet.log_tails()}"
        wait_until(what, lambda: _is_landed(landed_bank), 120)
