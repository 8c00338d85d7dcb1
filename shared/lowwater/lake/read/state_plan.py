"""Selects the files for a table's state at a gsn: a base, and the changes that overlay it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pyarrow.compute as pc

from lowwater.errors import LakeDamagedError, LakeError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import CopiedTables, File, Layer, Place
from lowwater.lake.read.stale import check_not_stale
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.schema.union import TableUnion, union_of
from lowwater.lake.schema.version_checks import Used, check_versions
from lowwater.lake.store.parquet_files import change_batches, last_gsn_at_or_below
from lowwater.records.positions import U64_MAX

_END = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class StatePlan:
    table: str
    gsn: int
    union: TableUnion
    #: numbers of the union's columns; empty for a table without a key
    key: tuple[int, ...]
    #: rows before any of the changes: of one copy, or of one folded state
    base: tuple[File, ...]
    #: changes with floor < gsn ≤ `gsn` are used
    changes: tuple[File, ...]
    floor: int
    #: a folded state that also overlays the base, a later copy: its rows above `over_floor` are used
    over: tuple[File, ...]
    over_floor: int
    #: the last truncate: rows at or before it are ignored
    emptied: Place | None

    @property
    def where(self) -> str:
        """SQL condition for `changes`."""
        return self._where(self.changes, self.floor)

    @property
    def where_over(self) -> str:
        return self._where(self.over, self.over_floor)

    def _where(self, files: Sequence[File], floor: int) -> str:
        # DuckDB is faster without a condition that is true for all rows
        parts = ["_op <> 't'"]
        if any(file.gsn_min <= floor for file in files):
            parts.append(f"_gsn > {floor}")
        if any(file.gsn_max > self.gsn for file in files):
            parts.append(f"_gsn <= {self.gsn}")
        if self.emptied is not None:
            gsn, seq = self.emptied.gsn, self.emptied.seq
            parts.append(f"(_gsn > {gsn} OR (_gsn = {gsn} AND _seq > {seq}))")
        return " AND ".join(parts)


def all_files(chain: Chain, table: str, *layers: Layer) -> list[File]:
    """Live files with any gsn; files of copies may have none."""
    return [file for file in chain.files(table, -1, _END) if file.layer in layers]


def versions_of(chain: Chain, table: str) -> list[int]:
    """Schema ids of all versions in the ledger, the oldest first."""
    found = [(v.version, id_) for id_, v in chain.versions.items() if v.table == table]
    return [id_ for _, id_ in sorted(found)]


def union_for(chain: Chain, table: str, files: Iterable[File], gsn: int) -> TableUnion:
    """The union of the versions of these files; without files, the newest version at that gsn."""
    ids = {file.schema_id for file in files}
    if not ids:
        known = [f.schema_id for f in all_files(chain, table, *Layer) if f.gsn_min <= gsn]
        known = known or versions_of(chain, table)[:1]
        ids = {max(known, key=lambda id_: chain.versions[id_].version)}
    missing = ids - chain.versions.keys()
    if missing:
        raise LakeDamagedError(
            f"{table}: the ledger has no schema {min(missing)}, which its files use",
            hint="`lowwater lake verify` lists all damage",
        )
    return union_of({id_: lake_table(chain.versions[id_].avro) for id_ in ids})


def check_history(chain: Chain, table: str, gsn: int, files: Iterable[File]) -> None:
    """Raises LakeError for a gsn whose history was folded."""
    oldest = max([chain.head.history_from, *(file.folded_to for file in files)])
    if gsn < oldest:
        raise LakeError(
            f"{table}: its history begins at gsn {oldest}, gsn {gsn} is below it",
            hint=f"ask for gsn {oldest} or above; older history was folded by `retention_hours`",
        )


def _order(written: str) -> tuple[int, int]:
    major, _, minor = written.partition(".")
    return int(major), U64_MAX if minor == "*" else int(minor or 0)


def _last_copy(chain: Chain, table: str, gsn: int) -> CopiedTables | None:
    found = [copied for copied in chain.copied if table in copied.tables and copied.gsn <= gsn]
    return max(found, key=lambda copied: copied.gsn, default=None)


def _newest_folded(chain: Chain, table: str, gsn: int) -> list[File]:
    found = [file for file in all_files(chain, table, Layer.STATE) if file.gsn_max <= gsn]
    newest = max((file.gsn_max for file in found), default=0)
    return [file for file in found if file.gsn_max == newest]


def _copy_base(chain: Chain, table: str, copy: CopiedTables, folded: Sequence[File]) -> tuple[list[File], int]:
    """The files of the copy, and the gsn above which changes are used."""
    base = [file for file in all_files(chain, table, Layer.COPY) if file.copy_id == copy.copy_id]
    lows = [copy.lows[table]] if table in copy.lows else [file.low for file in base if file.low]
    if not lows:
        return base, 0
    before = _generation_start(chain, copy) - 1
    streams = [f for f in all_files(chain, table, Layer.STREAM) if f.gsn_min <= copy.gsn and f.gsn_max > before]
    return base, last_gsn_at_or_below(chain.store, [*streams, *folded], *min(map(_order, lows)), after=before)


def _generation_start(chain: Chain, copy: CopiedTables) -> int:
    """The first gsn of the copy's generation: orders of earlier transactions are not comparable with the copy's."""
    found = (g.gsn for g in chain.generations if (g.source, g.generation) == (copy.source, copy.generation))
    return min(found, default=1)


def plan_state(chain: Chain, table: str, gsn: int, *, allow_stale: bool = False) -> StatePlan:
    """Raises StaleTableError if the state is unknown at this gsn, unless `allow_stale`, and LakeError."""
    if not allow_stale:
        check_not_stale(chain, table, gsn)
    copy, folded = _last_copy(chain, table, gsn), _newest_folded(chain, table, gsn)
    folded_at = folded[0].gsn_max if folded else 0
    base: list[File] = []
    over: list[File] = []
    floor = over_floor = 0
    if folded and (copy is None or copy.gsn <= folded_at):
        base, floor = folded, folded_at
    elif copy is not None:
        base, floor = _copy_base(chain, table, copy, folded)
        if floor < min(folded_at, chain.head.history_from):
            over, over_floor, floor = folded, floor, folded_at
    streams = [f for f in all_files(chain, table, Layer.STREAM) if f.gsn_max > floor]
    check_history(chain, table, gsn, [*base, *over, *streams])
    changes = [f for f in streams if f.gsn_min <= gsn]
    places = [place for f in changes for place in f.truncates if floor < place.gsn <= gsn]
    places += [place for f in over for place in f.truncates if over_floor < place.gsn]
    emptied = max(places, key=lambda place: (place.gsn, place.seq), default=None)
    if emptied is not None:
        base, changes = [], [f for f in changes if _has_rows_after(chain, f, emptied)]
    if not allow_stale:
        after = floor if emptied is None else max(floor, emptied.gsn - 1)
        used = [Used(f) if f.layer is Layer.COPY else Used(f, -1, f.gsn_max) for f in base]
        used += (Used(f, over_floor, f.gsn_max) for f in over)
        check_versions(chain, table, gsn, [*used, *(Used(f, after, gsn) for f in changes)])
    union = union_for(chain, table, [*base, *over, *changes], gsn)
    return StatePlan(
        table, gsn, union, _key(table, union), tuple(base), tuple(changes), floor, tuple(over), over_floor, emptied
    )


def _has_rows_after(chain: Chain, file: File, place: Place) -> bool:
    """Whether the file has changes after this position: not if its last change is the truncate itself."""
    if file.gsn_max != place.gsn:
        return file.gsn_max > place.gsn
    batches = change_batches(chain.store, file, ("_gsn", "_seq"), place.gsn - 1, place.gsn)
    return any((pc.max(batch.column("_seq")).as_py() or 0) > place.seq for batch in batches)


def _key(table: str, union: TableUnion) -> tuple[int, ...]:
    """The key of the newest version. All versions in use must have its columns, with compatible types."""
    numbers = []
    for name in union.newest.key:
        number = next(n for n, column in enumerate(union.columns) if column.name == name)
        lacking = [v.version for id_, v in union.versions.items() if id_ not in union.columns[number].names]
        if lacking:
            raise LakeError(
                f"{table}: version {lacking[0]} has no key column {name!r} of a type that fits the current one",
                hint="copy the table (`lowwater source copy`): rows of both versions cannot be matched by one key",
            )
        numbers.append(number)
    return tuple(numbers)
