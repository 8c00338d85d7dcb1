"""Compares the number of rows of each table with its log.

Writes of a connection that does not capture are not in the log, nor is a row that `UPDATE OR REPLACE` deletes; and
writes to a table of an attached file are logged as if they were of this file. The log does not show any of it. But the
number of rows does: it must be the number at the last count, plus inserts and minus deletes in the log since then. All
of it is queried in one view of the database.

Updated rows, and as many added as deleted rows, are not detected.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from lowwater_extractor.sources.turso.connect import Database
from lowwater_extractor.sources.turso.relations import COMMIT
from lowwater_extractor.sources.turso.schema.definitions import quoted
from lowwater_extractor.sources.turso.tables import SCHEMA, Tables

#: counting takes at most one in this many parts of the time
_SHARE = 50
NOTE = "counted"

#: table name and type of a log row
_NAME, _KIND = itemgetter(4), itemgetter(3)


class Audit:
    """`every_seconds`: 0 turns it off."""

    def __init__(self, database: Database, cdc_table: str, every_seconds: float) -> None:
        self._database = database
        self._cdc = quoted(cdc_table)
        self._every = every_seconds
        self._due_at = 0.0
        #: name → number of rows of the counted tables, and the last change of the log at that time
        self._counts: dict[str, int] = {}
        self.counted_at = 0
        #: name in the log → inserts minus deletes since then
        self._since: Counter[str] = Counter()

    @property
    def is_due(self) -> bool:
        return self._every > 0 and time.monotonic() >= self._due_at

    def passed(self, rows: Sequence[tuple[Any, ...]], tables: Tables) -> None:
        """Count rows of the log, each once; `tables` must have processed them."""
        if self._every <= 0:
            return
        remade = tables.take_remade()
        if remade:
            made = {name.lower(): at for name, at in remade.items()}
            rows = [row for row in rows if row[0] > (made.get(str(row[4]).lower()) or 0)]
            self._since = Counter({name: net for name, net in self._since.items() if name.lower() not in made})
            self._begin(remade)
        self._since.update(_net(rows))

    def _begin(self, remade: Mapping[str, int | None]) -> None:
        for name, at in remade.items():
            if at is None:
                self._counts.pop(name, None)
            else:
                # the log contains all of its rows
                self._counts[name] = 0

    def restore(self, notes: Mapping[str, bytes], at: int, tables: Tables) -> None:
        """Restore the counts from before a restart, with the changes in the log since then, up to `at`."""
        found = json.loads(notes.get(NOTE, b"{}"))
        if self._every <= 0 or not found:
            return
        ((first,),) = self._database.ask(f"SELECT min(change_id) FROM {self._cdc}")
        if found["at"] != at and (first is None or first > min(found["at"], at) + 1):
            return  # the log since then was pruned
        self.counted_at = found["at"]
        # without tables that were created since then: their counts are unknown
        self._counts = {n: count for n, count in found["counts"].items() if tables.since(n) <= self.counted_at}
        self._since = self._asked(self.counted_at, at)
        # if the count is after the position, the changes in between are read again
        self._since.subtract(self._asked(at, self.counted_at))

    def _asked(self, after: int, to: int) -> Counter[str]:
        rows = self._database.ask(
            f"SELECT table_name, sum(change_type) FROM {self._cdc} WHERE change_id > ? AND change_id <= ?"
            f" AND change_type <> {COMMIT} GROUP BY table_name",
            (after, to),
        )
        return Counter(dict(rows))

    def look(self, tables: Tables, texts: Mapping[str, str], read_to: int) -> dict[str, tuple[int, int]]:
        """Count all tables; returns table → (rows by the log, rows found) where these differ.

        Must be called in a view; `texts`: of the tables in that view. `read_to`: the log up to there was given to
        `passed`. Sets `counted_at` to the end of the log.
        """
        began = time.monotonic()
        ((last,),) = self._database.ask(f"SELECT max(change_id) FROM {self._cdc}")
        last = max(last or 0, read_to)
        ahead = self._asked(read_to, last)
        if SCHEMA in ahead:
            # the log ahead contains schema changes, so the tables at its end are not known yet
            return {}
        self._begin(tables.take_remade())
        names = [name for name in tables.captured_names() if texts.get(name) == tables.text(name)]
        found: dict[str, int] = {}
        for name in names:
            ((found[name],),) = self._database.ask(f"SELECT count(*) FROM {quoted(name)}")
        net: Counter[str] = Counter()
        for name, rows in [*self._since.items(), *ahead.items()]:
            net[tables.name_of(name)] += rows
        wrong = {
            name: (self._counts[name] + net[name], count)
            for name, count in found.items()
            if name in self._counts and count != self._counts[name] + net[name]
        }
        self._counts, self.counted_at, self._since = found, last, Counter()
        # the changes ahead are counted again when they are read
        self._since.subtract(ahead)
        now = time.monotonic()
        self._due_at = now + max(self._every, _SHARE * (now - began))
        return wrong

    def note(self) -> bytes:
        return json.dumps({"at": self.counted_at, "counts": self._counts}).encode()


def _net(rows: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Return inserts minus deletes by table. Called for every row of the log, so there is no Python loop over rows."""
    names = list(map(_NAME, rows))
    found = set(names) - {None}
    if len(found) == 1:
        return {found.pop(): sum(map(_KIND, rows)) - COMMIT * names.count(None)}
    net: Counter[str] = Counter()
    for (name, kind), count in Counter(zip(names, map(_KIND, rows), strict=True)).items():
        if kind != COMMIT:
            net[name] += kind * count
    return net
