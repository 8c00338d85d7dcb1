"""Selects the table versions that Spark decodes with compiled code. Decides only, does no I/O.

Spark compiles one decoder for all of them, at a cost of about 4 ms per column, and again when one is added. Hundreds of
versions in one landing (a table that gets many new columns) took minutes, and then more than the memory of the driver.
So only versions with many rows are compiled, up to a number of columns; `plain_decode.py` decodes the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

#: columns that are compiled at most, before and after a change counted apart; twice as many fill a heap of 1 GB
COLUMNS_MAX = 8_000
#: of versions that are compiled at the start, before they have many rows
COLUMNS_AT_START_MAX = 1_000
#: of the first records, which are compiled at the start
SHARE_MIN = 0.02
#: rows after which a version is compiled: before, compiling takes longer than decoding them in Python
ROWS_MIN = 5_000


class CompiledTables:
    def __init__(self, width: Callable[[int], int]) -> None:
        """`width`: the number of columns of a table version, by its schema id."""
        self._width = width
        self._rows: dict[int, int] = {}
        #: in the order in which they were added: the plan stays the same as long as this does
        self.ids: tuple[int, ...] = ()

    def count(self, rows: Mapping[int, int]) -> None:
        """Adds rows that have landed, by schema id."""
        for schema_id, number in rows.items():
            self._rows[schema_id] = self._rows.get(schema_id, 0) + number

    def expect(self, landed: set[int], first: Sequence[int]) -> None:
        """Versions that probably have many rows: of the last landings, if they are few, and of the first records."""
        for schema_id, number in Counter(first).items():
            if number >= SHARE_MIN * len(first):
                self._rows[schema_id] = ROWS_MIN
        if sum(2 * self._width(schema_id) for schema_id in landed) <= COLUMNS_AT_START_MAX:
            self._rows |= dict.fromkeys(landed, ROWS_MIN)

    def select(self, recent: set[int]) -> tuple[int, ...]:
        """Updates `ids`. `recent`: versions that still have rows; others are no longer compiled.

        Versions that are compiled stay, then those with the most rows are added. One is always compiled, however wide.
        """
        self._rows = {schema_id: rows for schema_id, rows in self._rows.items() if schema_id in recent}
        kept = [schema_id for schema_id in self.ids if schema_id in recent]
        hot = [schema_id for schema_id, rows in self._rows.items() if rows >= ROWS_MIN and schema_id not in kept]
        room = COLUMNS_MAX - sum(2 * self._width(schema_id) for schema_id in kept)
        for schema_id in sorted(hot, key=lambda id_: (-self._rows[id_], id_)):
            columns = 2 * self._width(schema_id)
            if columns <= room or not kept:
                kept.append(schema_id)
                room -= columns
        self.ids = tuple(kept)
        return self.ids
