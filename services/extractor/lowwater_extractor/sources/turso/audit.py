"""Whether tables have as many rows as their log says.

What a connection writes that does not capture is in no log; nor is the row that an `UPDATE OR REPLACE` pushes out, and
what is written to a table of another file (ATTACH) is logged as if it were of this one. None of it can be seen in the
log. But rows that came or went so can be counted: what a table had, and what the log has added and taken since, is what
it has now. All of it is asked in one view of the database.

A row that was only changed so, or one that came for one that went, is not found.
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

#: counting takes at most one part in so many of the time
_SHARE = 50
NOTE = "counted"

#: of a row of the log
_NAME, _KIND = itemgetter(4), itemgetter(3)


class Audit:
    """`every_seconds`: 0 turns it off."""

    def __init__(self, database: Database, cdc_table: str, every_seconds: float) -> None:
        self._database = database
        self._cdc = quoted(cdc_table)
        self._every = every_seconds
        self._due_at = 0.0
        #: name → rows, and the last change of the log that they have; of tables that were counted
        self._counts: dict[str, int] = {}
        self.counted_at = 0
        #: name as the log has it → rows that came, less those that went, since then
        self._since: Counter[str] = Counter()

    @property
    def is_due(self) -> bool:
        return self._every > 0 and time.monotonic() >= self._due_at

    def passed(self, rows: Sequence[tuple[Any, ...]], tables: Tables) -> None:
        """Rows of the log, each once; `tables` are as they have made them."""
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
                # the log has had all of its rows
                self._counts[name] = 0

    def restore(self, notes: Mapping[str, bytes], at: int, tables: Tables) -> None:
        """As it was counted before a restart, with what the log has had since then, up to `at`."""
        found = json.loads(notes.get(NOTE, b"{}"))
        if self._every <= 0 or not found:
            return
        ((first,),) = self._database.ask(f"SELECT min(change_id) FROM {self._cdc}")
        if found["at"] != at and (first is None or first > min(found["at"], at) + 1):
            return  # it was pruned
        self.counted_at = found["at"]
        # one that was made since then has another count, and that is not known
        self._counts = {n: count for n, count in found["counts"].items() if tables.since(n) <= self.counted_at}
        self._since = self._asked(self.counted_at, at)
        # counted further than the position is: what lies in between passes once more
        self._since.subtract(self._asked(at, self.counted_at))

    def _asked(self, after: int, to: int) -> Counter[str]:
        rows = self._database.ask(
            f"SELECT table_name, sum(change_type) FROM {self._cdc} WHERE change_id > ? AND change_id <= ?"
            f" AND change_type <> {COMMIT} GROUP BY table_name",
            (after, to),
        )
        return Counter(dict(rows))

    def look(self, tables: Tables, texts: Mapping[str, str], read_to: int) -> dict[str, tuple[int, int]]:
        """Tables with another number of rows than the log says: (wanted, found); `counted_at` is the log's end.

        Called inside of a view; `texts`: what the tables are there. `read_to`: what has `passed`.
        """
        began = time.monotonic()
        ((last,),) = self._database.ask(f"SELECT max(change_id) FROM {self._cdc}")
        last = max(last or 0, read_to)
        ahead = self._asked(read_to, last)
        if SCHEMA in ahead:
            # what the tables are there is not known yet
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
        # what lies ahead passes once more
        self._since.subtract(ahead)
        now = time.monotonic()
        self._due_at = now + max(self._every, _SHARE * (now - began))
        return wrong

    def note(self) -> bytes:
        return json.dumps({"at": self.counted_at, "counts": self._counts}).encode()


def _net(rows: Sequence[tuple[Any, ...]]) -> dict[str, int]:
    """Inserts are 1, deletes -1, updates 0. Every row of the log comes by here: nothing is done for each in Python."""
    names = list(map(_NAME, rows))
    found = set(names) - {None}
    if len(found) == 1:
        return {found.pop(): sum(map(_KIND, rows)) - COMMIT * names.count(None)}
    net: Counter[str] = Counter()
    for (name, kind), count in Counter(zip(names, map(_KIND, rows), strict=True)).items():
        if kind != COMMIT:
            net[name] += kind * count
    return net
