"""Ten transfers a second into a Turso file, each a transaction over two tables; the file captures its changes."""

from __future__ import annotations

import random
import time
from pathlib import Path

import turso

FILE = Path("/var/lib/sources/turso/bank.db")


def work() -> None:
    FILE.parent.mkdir(parents=True, exist_ok=True)
    connection = turso.connect(str(FILE))
    cursor = connection.cursor()
    # capture is a setting of the connection: every writing connection must set it
    cursor.execute("PRAGMA capture_data_changes_conn('full')")
    cursor.execute("CREATE TABLE IF NOT EXISTS accounts (id INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")
    cursor.execute(
        "CREATE TABLE IF NOT EXISTS transfers (id INTEGER PRIMARY KEY, source INTEGER, target INTEGER, cents INTEGER)"
    )
    for account in range(1, 101):
        cursor.execute("INSERT OR IGNORE INTO accounts VALUES (?, 1000000)", (account,))
    connection.commit()
    while True:
        source, target, cents = random.randint(1, 100), random.randint(1, 100), random.randint(1, 1000)
        cursor.execute("UPDATE accounts SET cents = cents - ? WHERE id = ?", (cents, source))
        cursor.execute("UPDATE accounts SET cents = cents + ? WHERE id = ?", (cents, target))
        cursor.execute("INSERT INTO transfers (source, target, cents) VALUES (?, ?, ?)", (source, target, cents))
        connection.commit()
        time.sleep(0.1)


if __name__ == "__main__":
    work()
