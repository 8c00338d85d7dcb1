"""The catalogue facts that a table's rows depend on: the current ones, and those stored at the last check.

A table is identified by its oid, a column by its attnum, a partitioned table by the set of its partitions: after DDL
the same name may refer to a different object. Such DDL changes rows without row changes in the log. Therefore each
table's facts are compared with the stored ones, and the difference decides whether the table must be copied again.

The stored facts are small, a few bytes per column and partition, and are stored with the source's position. Changes
made while the extractor was not running are detected as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from lowwater.errors import CodecError

#: flag of a dropped column: a later column may reuse its name with different values
_DROPPED = 1


def fingerprint(*parts: object, size: int = 6) -> int:
    """Return a hash that is stable across processes."""
    text = "\0".join(map(str, parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=size).digest())


@lru_cache(maxsize=65_536)
def _column(name: str) -> int:
    return fingerprint(name, size=5) << 1


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    name: str
    #: rows older than the column may have a value: default, identity or missing value
    is_filled: bool


@dataclass(frozen=True, slots=True)
class PartFacts:
    """A partition at any level, with or without its own rows."""

    oid: int
    #: attaching transaction, pending detach and filenode
    version: str
    #: created as a partition, so initially empty, not attached later
    is_born: bool

    @property
    def print(self) -> int:
        return fingerprint(self.oid, self.version)


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """A user-defined type that the text of a table's values depends on."""

    #: enum labels by oid; a label that is added later changes no row
    labels: Mapping[int, str] = field(default_factory=dict)
    #: definition of other types
    shape: str = ""

    def print(self, last: int | None = None) -> tuple[int, int]:
        """Return (last label oid, hash) of the labels up to `last`, or of all labels."""
        last = max(self.labels, default=0) if last is None else last
        known = [f"{oid}={label}" for oid, label in sorted(self.labels.items()) if oid <= last]
        return last, fingerprint(self.shape, *known)


@dataclass(frozen=True, slots=True)
class TableFacts:
    """The current catalogue facts of a captured table."""

    name: str
    oid: int
    #: 0 for a partitioned table, which has no rows of its own
    filenode: int
    #: oid of its pg_publication_rel row; 0: published by schema or FOR ALL TABLES
    published: int
    #: attnums of the key
    key: tuple[int, ...]
    #: captured columns by attnum
    columns: Mapping[int, ColumnFacts]
    #: highest attnum ever used, including dropped columns
    columns_ever: int
    #: hash that changes with every change of a column
    columns_version: int
    parts: tuple[PartFacts, ...] = ()
    types: Mapping[int, TypeFacts] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownTable:
    """The stored facts of a table."""

    oid: int
    filenode: int
    published: int
    key: int
    columns_version: int
    #: by attnum: hash of the name, with the flag of dropped columns; 0: not captured
    columns: tuple[int, ...]
    parts: frozenset[int]
    #: by oid: last known label oid, and hash of the type
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
                f"the stored facts of a table cannot be read: {error}",
                hint="was it written by a newer lowwater? upgrade this one; or reset the source",
            ) from error


def known_of(facts: TableFacts, before: KnownTable | None) -> KnownTable:
    """Return the facts to store. `before`: the stored facts, from which names of dropped columns are carried over."""
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
    """Return why the captured rows may differ from the database, empty if they do not."""
    if known.oid != facts.oid:
        return "its name now refers to another table"
    if known.published != facts.published:
        return "it was removed from its publication or added again"
    if known.key != fingerprint(*facts.key):
        return "its key was changed"
    # a table named by a publication cannot be set UNLOGGED; one published FOR ALL TABLES can be, temporarily
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
