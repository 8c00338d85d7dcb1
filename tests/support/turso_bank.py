"""A bank on a Turso file, written by a process of its own: `python -m tests.support.turso_bank app.db seed`.

Transfers between accounts, in one transaction with an entry for each side; some are rolled back, some in autocommit
by a trigger. The sum over all accounts is always the same, and so is the sum over all entries.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.turso_file import TursoFile

ACCOUNTS, CENTS = 50, 1000
TABLES = (
    "CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, cents INTEGER)",
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, account INTEGER, cents INTEGER, note)",
    "CREATE TABLE orders (code TEXT PRIMARY KEY NOT NULL, account INTEGER, cents INTEGER)",
    # one statement, three changes: an order books itself
    "CREATE TRIGGER booked AFTER INSERT ON orders BEGIN"
    " UPDATE accounts SET cents = cents + NEW.cents WHERE id = NEW.account;"
    " UPDATE accounts SET cents = cents - NEW.cents WHERE id = 1; END",
)


def make(path: Path, accounts: int = ACCOUNTS) -> TursoFile:
    # not for the writer's process, which is to start quickly
    from tests.support.turso_file import TursoFile

    file = TursoFile(path)
    file.do(*TABLES)
    rows = ", ".join(f"({n}, 'owner {n} é', {CENTS})" for n in range(1, accounts + 1))
    file.do(f"INSERT INTO accounts VALUES {rows}")
    return file


def _transfer(execute: Callable[..., Any], rng: random.Random) -> None:
    a, b = rng.sample(range(2, ACCOUNTS + 1), 2)
    cents = rng.randrange(1, 100)
    execute("BEGIN IMMEDIATE")
    for account, amount in ((a, -cents), (b, cents)):
        execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", (amount, account))
        note = rng.choice([None, 1, 1.5, "text", b"\x00\xff", "x" * rng.randrange(500)])
        execute("INSERT INTO entries (account, cents, note) VALUES (?, ?, ?)", (account, amount, note))
    execute("ROLLBACK" if rng.random() < 0.1 else "COMMIT")


def _order(execute: Callable[..., Any], rng: random.Random) -> None:
    code = f"{rng.getrandbits(64):x}"
    execute("INSERT INTO orders VALUES (?, ?, ?)", (code, rng.randrange(2, ACCOUNTS + 1), rng.randrange(100)))


def write(path: str, seed: int, pause_seconds: float) -> None:
    """Until it is killed."""
    import turso

    from lowwater.turso import FEATURES, capture

    connection = turso.connect(path, isolation_level=None, experimental_features=FEATURES)
    connection.execute("PRAGMA busy_timeout = 10000")
    capture(connection)
    rng = random.Random(seed)
    print("writing", flush=True)
    while True:
        (_order if rng.random() < 0.3 else _transfer)(connection.execute, rng)
        time.sleep(pause_seconds)


class Writer:
    """The process; another one each time that it was killed."""

    def __init__(self, path: Path, pause_seconds: float = 0.002) -> None:
        self._path = path
        self._pause = pause_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._seed = 0

    def start(self) -> None:
        self._seed += 1
        command = [sys.executable, "-m", "tests.support.turso_bank", str(self._path), str(self._seed), str(self._pause)]
        self._process = subprocess.Popen(command, cwd=Path(__file__).parent.parent.parent, stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"writing\n"

    def kill(self) -> None:
        if self._process is not None:
            assert self._process.poll() is None, "the writer has ended by itself"
            self._process.kill()
            self._process.communicate()
            self._process = None


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))
