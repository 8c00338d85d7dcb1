"""The steps of the differential test on a simulated cluster, read in this process: quick, so that a unit test can."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from tests.conformance.kit import Encoders
from tests.differential.oracle import Oracle
from tests.differential.workload import Row

from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources import open_source

STEPS = 40


class Reading:
    """What is published, put together to rows: all images are whole, so each change names the row that it takes."""

    def __init__(self, kind: Oracle) -> None:
        self._encoders = Encoders()
        self._stream = open_source("s", kind.source_kind, kind.config()).stream({}, {}, self._encoders)
        self._waiting: list[SourceTransaction] = []
        self.rows: dict[str, Counter[Row]] = {}
        self.read()

    def read(self) -> None:
        marks, polled = None, self._stream.poll(frozenset())
        while marks != polled.marks:
            self._waiting += polled.transactions
            marks, polled = polled.marks, self._stream.poll(frozenset())
        self._waiting += polled.transactions
        low = min(mark.order for mark in polled.marks.values())
        ready = sorted((t for t in self._waiting if t.order <= low), key=lambda t: (t.order, t.thread, t.txid))
        self._waiting = [t for t in self._waiting if t.order > low]
        for transaction in ready:
            for number, frame in enumerate(transaction.changes, 1):
                change = self._encoders.decode(frame, number)
                rows = self.rows.setdefault(change.table, Counter())
                if change.op == "t":
                    rows.clear()
                if change.before is not None:
                    assert rows[change.before] == 1, f"a change of a row that is not there: {change}"
                    del rows[change.before]
                if change.after is not None:
                    rows[change.after] += 1

    def close(self) -> None:
        self._stream.close()


def _written(row: Row) -> Row:
    """Oracle's empty text is a null."""
    return tuple(None if value in ("", b"") else value for value in row)


@pytest.mark.parametrize("seed", [1])
def test_random_workload_is_read_as_written(tmp_path: Path, seed: int) -> None:
    kind, rng = Oracle(tmp_path), random.Random(seed)
    reading = Reading(kind)
    for number in range(1, STEPS + 1):
        step = kind.choose(rng, kind.state())
        kind.execute(step, number)
        reading.read()
        for table, rows in kind.rows.items():
            found = reading.rows.get(table, Counter())
            assert found == Counter(map(_written, rows.values())), f"{table} after step {number}: {step}"
    reading.close()
    kind.close()
