"""Parents of captured tables: finds the children that foreign key actions may have changed without the log."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lowwater.errors import LowwaterError
from lowwater_extractor.sources.mysql.ddl.foreign_keys import ChildKey, ForeignKeys
from lowwater_extractor.sources.mysql.types import ColumnCode
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.row_code import ReadRow, compile_read

#: raised by reading a row in an unexpected format
_ERRORS = (LowwaterError, ValueError, ArithmeticError, IndexError, struct.error)


class Parent:
    """A version of a parent table. `codes` and `names` describe its columns; if they are empty because the columns are
    unknown, every update is treated as an update of the key."""

    def __init__(self, table: str, keys: ForeignKeys, codes: Sequence[ColumnCode], names: Sequence[str]) -> None:
        self.table = table
        self._keys = keys
        self._codes = codes
        self._places = {name.lower(): i for i, name in enumerate(names)}
        self.children_of_delete = keys.children_of_delete(table)
        self._updates = keys.updates_of(table)
        self._every = keys.children_of_update(self._updates)
        self._reads: dict[bytes, ReadRow] = {}

    def children_of_update(self, e: bytes, at: int, end: int) -> set[str]:
        """Return the children that an update event may have changed. `at`: offset of the column count."""
        if not self._updates:
            return set()
        if not self._codes:
            return self._every
        try:
            changed = self._changed(e, at, end)
        except _ERRORS:
            # rows that cannot be compared are treated as changed
            return self._every
        return self._keys.children_of_update(changed)

    def _changed(self, e: bytes, at: int, end: int) -> list[ChildKey]:
        count, at = tm.packed(e, at)
        size = (count + 7) // 8
        old, new = e[at : at + size], e[at + size : at + 2 * size]
        at += 2 * size
        if count != len(self._codes):
            return self._updates
        columns = {key: [self._places.get(name.lower()) for name in key.key.columns] for key in self._updates}
        # a key without columns, or whose columns have been renamed, may refer to any column
        left = {key: [i for i in places if i is not None] for key, places in columns.items()}
        left = {key: places for key, places in left.items() if places and len(places) == len(columns[key])}
        found = [key for key in self._updates if key not in left]
        while at < end and left:
            before, at = self._read(old)(e, at)
            after, at = self._read(new)(e, at)
            for key, places in list(left.items()):
                # columns that are not in the new row are unchanged
                if any(_has(new, i) and (not _has(old, i) or before[i] != after[i]) for i in places):
                    found.append(key)
                    del left[key]
        return found

    def _read(self, bitmap: bytes) -> ReadRow:
        if bitmap not in self._reads:
            present = [i for i in range(len(self._codes)) if _has(bitmap, i)]
            self._reads[bitmap] = compile_read(self._codes, range(len(self._codes)), present)
        return self._reads[bitmap]


def _has(bitmap: bytes, i: int) -> bool:
    return bool(bitmap[i >> 3] >> (i & 7) & 1)
