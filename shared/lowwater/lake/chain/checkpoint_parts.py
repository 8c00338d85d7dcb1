"""Parts of a checkpoint: immutable Parquet lists of live files, named by their hash and read on demand.

Parts are organised like the runs of a log-structured merge tree: a new part has the files of the last manifests, and
small parts are merged into larger ones, so that their number grows with the logarithm of the number of live files.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from lowwater.errors import LakeDamagedError, NotThereError
from lowwater.lake.chain.manifest import LEDGER, File, digest
from lowwater.lake.store.base import Store

DIRECTORY = f"{LEDGER}/_checkpoints"
#: maximum size of a merged part: a merge has two in memory, a reader fetches a whole part (about 4 MB)
PART_ENTRIES_MAX = 50_000
_PARTS_CACHED_MAX = 4
_ENTRIES_CACHED_MAX = 200_000

_OWN_COLUMNS = ("table", "path", "gsn_min", "gsn_max", "rows", "bytes")
_SCHEMA = pa.schema(
    [
        ("table", pa.string()),
        #: the manifest that added the file, and its index there: the order in which files were landed
        ("n", pa.int64()),
        ("i", pa.int32()),
        ("path", pa.string()),
        ("gsn_min", pa.int64()),
        ("gsn_max", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        #: the rest of the manifest's entry, as JSON
        ("file", pa.string()),
    ]
)


class UnusableError(LakeDamagedError):
    """A checkpoint or a part cannot be used. Handled inside the chain: its content is also in the manifests."""


class Entry(NamedTuple):
    n: int
    i: int
    file: File


class TableSummary(NamedTuple):
    """Totals of a table's live files."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    gsn_min: int = 0
    gsn_max: int = 0

    def plus(self, other: TableSummary) -> TableSummary:
        if not self.files or not other.files:
            return self if self.files else other
        return TableSummary(
            self.files + other.files,
            self.rows + other.rows,
            self.bytes + other.bytes,
            min(self.gsn_min, other.gsn_min),
            max(self.gsn_max, other.gsn_max),
        )

    @classmethod
    def of(cls, files: Iterable[File]) -> TableSummary:
        total = cls()
        for f in files:
            total = total.plus(cls(1, f.rows, f.bytes, f.gsn_min, f.gsn_max))
        return total


class Part(BaseModel):
    """Reference to a part, in a checkpoint."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    sha256: str
    entries: int
    tables: dict[str, TableSummary]


@dataclass(frozen=True, slots=True)
class Draft:
    """A part of the next checkpoint: an old part unchanged, or new content."""

    entries: int
    old: Part | None = None
    new: pa.Table | None = None


class PartReader:
    """Reads parts, verifies their hashes, and caches the last ones."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._parts: OrderedDict[str, pa.Table] = OrderedDict()
        self._entries: OrderedDict[tuple[str, str], list[Entry]] = OrderedDict()
        self._entries_cached = 0

    def whole(self, part: Part) -> pa.Table:
        if part.path in self._parts:
            self._parts.move_to_end(part.path)
            return self._parts[part.path]
        try:
            data = self._store.get(part.path)
        except NotThereError as error:
            raise UnusableError("a part of a checkpoint is missing", position=part.path) from error
        if digest(data) != part.sha256:
            raise UnusableError("a part of a checkpoint was modified: its hash is wrong", position=part.path)
        found = pq.read_table(pa.BufferReader(data), schema=_SCHEMA)
        self._parts[part.path] = found
        if len(self._parts) > _PARTS_CACHED_MAX:
            self._parts.popitem(last=False)
        return found

    def entries(self, part: Part, table: str) -> list[Entry]:
        key = (part.path, table)
        if key not in self._entries:
            found = self.whole(part)
            self._entries[key] = _decode(found.filter(pc.equal(found["table"], table)))
            self._entries_cached += len(self._entries[key])
            while self._entries_cached > _ENTRIES_CACHED_MAX and len(self._entries) > 1:
                self._entries_cached -= len(self._entries.popitem(last=False)[1])
        self._entries.move_to_end(key)
        return self._entries[key]


def all_entries(reader: PartReader, part: Part) -> list[Entry]:
    return _decode(reader.whole(part))


def plan_parts(
    reader: PartReader, parts: Sequence[Part], removed: set[str], added: Sequence[Entry], largest: int
) -> list[Draft]:
    """The parts of the next checkpoint: without `removed`, with `added` at the end, small parts merged."""
    drafts = _without(reader, parts, removed)
    for begin in range(0, len(added), largest):
        new = _encode(added[begin : begin + largest])
        drafts.append(Draft(new.num_rows, new=new))
    return _merge(reader, drafts, largest)


def write_part(store: Store, draft: Draft) -> Part:
    if draft.old is not None:
        return draft.old
    assert draft.new is not None
    table = draft.new.sort_by([("table", "ascending"), ("n", "ascending"), ("i", "ascending")])
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data = sink.getvalue().to_pybytes()
    sha256 = digest(data)
    path = f"{DIRECTORY}/part-{sha256[:32]}.parquet"
    # named by its hash: another writer of this path writes the same bytes
    store.put(path, data)
    return Part(path=path, sha256=sha256, entries=table.num_rows, tables=_summaries(table))


def _without(reader: PartReader, parts: Sequence[Part], removed: set[str]) -> list[Draft]:
    """The parts without `removed`. Searched from the newest, because compactions mostly remove new files: older parts
    are then not read."""
    drafts: list[Draft] = []
    left = set(removed)
    for part in reversed(parts):
        draft = Draft(part.entries, old=part)
        if left:
            whole = reader.whole(part)
            gone = pc.is_in(whole["path"], value_set=pa.array(sorted(left), pa.string()))
            found = whole.filter(gone)["path"].to_pylist()
            if found:
                left.difference_update(found)
                kept = whole.filter(pc.invert(gone))
                draft = Draft(kept.num_rows, new=kept)
        if draft.entries:
            drafts.append(draft)
    drafts.reverse()
    return drafts


def _merge(reader: PartReader, drafts: list[Draft], largest: int) -> list[Draft]:
    """Merges until each part is more than twice as large as the next, or two would exceed the maximum size."""

    def content(draft: Draft) -> pa.Table:
        return draft.new if draft.old is None else reader.whole(draft.old)

    kept: list[Draft] = []
    for following in drafts:
        draft = following
        while kept and kept[-1].entries <= 2 * draft.entries and kept[-1].entries + draft.entries <= largest:
            before = kept.pop()
            draft = Draft(before.entries + draft.entries, new=pa.concat_tables([content(before), content(draft)]))
        kept.append(draft)
    return kept


def _encode(entries: Sequence[Entry]) -> pa.Table:
    rows: list[dict[str, Any]] = []
    for n, i, file in entries:
        rest = file.model_dump_json(exclude=set(_OWN_COLUMNS), exclude_defaults=True)
        rows.append({"n": n, "i": i, "file": rest, **{name: getattr(file, name) for name in _OWN_COLUMNS}})
    return pa.Table.from_pylist(rows, schema=_SCHEMA)


def _decode(table: pa.Table) -> list[Entry]:
    entries: list[Entry] = []
    for row in table.to_pylist():
        own = {name: row[name] for name in _OWN_COLUMNS}
        entries.append(Entry(row["n"], row["i"], File.model_validate({**json.loads(row["file"]), **own})))
    return entries


def _summaries(table: pa.Table) -> dict[str, TableSummary]:
    grouped = table.group_by("table").aggregate(
        [("path", "count"), ("rows", "sum"), ("bytes", "sum"), ("gsn_min", "min"), ("gsn_max", "max")]
    )
    return {
        row["table"]: TableSummary(
            row["path_count"], row["rows_sum"], row["bytes_sum"], row["gsn_min_min"], row["gsn_max_max"]
        )
        for row in sorted(grouped.to_pylist(), key=lambda row: str(row["table"]))
    }
