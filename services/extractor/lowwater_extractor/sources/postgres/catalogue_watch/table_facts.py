"""What a table is, as far as its rows depend on it: by its catalogue now, and as it was when it was last seen.

A table is its oid, a column its attnum, a partitioned table the set of its partitions: a name may come to mean another
one of each. Rows come and go with these, and the log has no word of it. So each table's facts are compared with those
that were kept, and what differs says whether a copy is needed.

What is kept of a table is small, a few bytes for each column and partition, and lies beside the source's position: so
a change is noticed that was made while nobody was reading.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lowwater.errors import CodecError

#: of a column that was dropped: its name may come again, with other values
_DROPPED = 1


def fingerprint(*parts: object, size: int = 6) -> int:
    """The same in every process."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest())


@lru_cache(maxsize=65_536)
def _column(name: str) -> int:
    return fingerprint(name, size=5) << 1


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    name: str
    #: rows that are older than the column have a value in it
    is_filled: bool


@dataclass(frozen=True, slots=True)
class PartFacts:
    """One node below a partitioned table, with rows of its own or not."""

    oid: int
    #: how and when it was attached, and the file that its rows lie in
    version: str
    #: it was empty when it came: made as a partition, not attached later
    is_born: bool

    @property
    def print(self) -> int:
        return fingerprint(self.oid, self.version)


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A type of the users' own that the text of a table's values depends on."""

    #: of an enum, by oid: what is added later changes no row
    labels: Mapping[int, str] = field(default_factory=dict)
    #: of all others
    shape: str = ""

    def print(self, last: int | None = None) -> tuple[int, int]:
        """Of the labels up to `last`, or of all."""
        last = max(self.labels, default=0) if last is None else last
        known = [f"{oid}={label}" for oid, label in sorted(self.labels.items()) if oid <= last]
        return last, fingerprint(self.shape, *known)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A captured table as its catalogue has it."""

    name: str
    oid: int
    #: of its rows; of a partitioned table, which has none of its own, 0
    filenode: int
    #: the publication's row that names it; 0: one that has all tables
    published: int
    #: the attnums of its key
    key: tuple[int, ...]
    #: by attnum, without those that are not captured
    columns: Mapping[int, ColumnFacts]
    #: as many as there ever were
    columns_ever: int
    #: changes with every change of a column
    columns_version: int
    parts: tuple[PartFacts, ...] = ()
    types: Mapping[int, TypeFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What is kept of it."""

    oid: int
    filenode: int
    published: int
    key: int
    columns_version: int
    #: by attnum: a print of its name, and whether it was dropped; 0: not captured
    columns: tuple[int, ...]
    parts: frozenset[int]
    #: by oid: the last label that was known, and a print of what it was
    types: Mapping[int, tuple[int, int]]

    def has_columns(self, names: Iterable[str]) -> bool:
        return all(_column(name) in self.columns for name in names)

    def pack(self) -> bytes:
        columns = "".join(f"{column:011x}" for column in self.columns)
        parts = "".join(f"{part:012x}" for part in sorted(self.parts))
        types = {str(oid): list(known) for oid, known in sorted(self.types.items())}
        head = [self.oid, self.filenode, self.published, self.key, self.columns_version]
        return json.dumps([*head, columns, parts, types], separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, data: bytes) -> KnownTable:
        try:
            oid, filenode, published, key, version, columns, parts, types = json.loads(data)
            return cls(
                oid, filenode, published, key, version,
                tuple(int(columns[at : at + 11], 16) for at in range(0, len(columns), 11)),
                frozenset(int(parts[at : at + 12], 16) for at in range(0, len(parts), 12)),
                {int(type_): (last, print_) for type_, (last, print_) in types.items()},
            )  # fmt: skip
        except (ValueError, TypeError) as error:
            raise CodecError(
                f"what is kept of a table cannot be read: {error}",
                hint="was it written by a newer lowwater? upgrade this one; or reset the source",
            ) from error


def known_of(facts: TableFacts, before: KnownTable | None) -> KnownTable:
    """`before`: of the same table, whose dropped columns are still known by name."""
    old = before.columns if before is not None and before.oid == facts.oid else ()
    columns = []
    for attnum in range(1, facts.columns_ever + 1):
        column = facts.columns.get(attnum)
        was = old[attnum - 1] if attnum <= len(old) else 0
        columns.append(_column(column.name) if column is not None else was | _DROPPED if was else 0)
    return KnownTable(
        facts.oid, facts.filenode, facts.published, fingerprint(*facts.key), facts.columns_version, tuple(columns),
        frozenset(part.print for part in facts.parts), {oid: type_.print() for oid, type_ in facts.types.items()},
    )  # fmt: skip


def what_changed(known: KnownTable, facts: TableFacts) -> str:
    """Why the rows that were captured are not those of the database any more; empty: they are."""
    if known.oid != facts.oid:
        return "another table has its name now"
    if known.published != facts.published:
        return "it was taken out of its publication, or put into it again"
    if known.key != fingerprint(*facts.key):
        return "its key was changed"
    # a table that a publication names cannot be made unlogged; one that is published with all others can, for a time
    is_guarded = facts.published != 0
    if known.filenode != facts.filenode and (known.columns_version != facts.columns_version or not is_guarded):
        return "ALTER TABLE has rewritten its rows"
    return _parts(known, facts) or _columns(known, facts) or _types(known, facts)


def _parts(known: KnownTable, facts: TableFacts) -> str:
    now = {part.print: part for part in facts.parts}
    if known.parts - now.keys():
        return "one of its partitions was detached, dropped, truncated or rewritten"
    if any(not now[print_].is_born for print_ in now.keys() - known.parts):
        return "a partition was attached to it"
    return ""


def _columns(known: KnownTable, facts: TableFacts) -> str:
    names = {name & ~_DROPPED for name in known.columns if name & _DROPPED}
    names |= {name for attnum, name in enumerate(known.columns, 1) if name and attnum not in facts.columns}
    for attnum, column in facts.columns.items():
        was = known.columns[attnum - 1] if attnum <= len(known.columns) else None
        if was is None:
            if column.is_filled:
                return f"column {column.name} was added with values in old rows"
            if _column(column.name) in names:
                return f"column {column.name} was dropped and added again"
        elif was != _column(column.name):
            return f"column {column.name} had another name, or was not captured before"
    return ""


def _types(known: KnownTable, facts: TableFacts) -> str:
    for oid, (last, print_) in known.types.items():
        now = facts.types.get(oid)
        if now is not None and now.print(last) != (last, print_):
            return "a type of one of its columns was changed"
    return ""
