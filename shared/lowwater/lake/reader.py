"""Reads a lake: its tables, their changes between two gsn, their state at a gsn. Needs neither Spark nor Kafka."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from lowwater.errors import LakeError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.read.as_of import AsOf, resolve
from lowwater.lake.read.changes import Changes
from lowwater.lake.read.stale import StaleSince, stale_now
from lowwater.lake.read.state import State
from lowwater.lake.read.state_plan import all_files, check_history, plan_state, union_for, versions_of
from lowwater.lake.schema.columns import LakeTable, lake_table
from lowwater.lake.store.base import Store, open_lake_store
from lowwater.runtime.config import LakeConfig


@dataclass(frozen=True, slots=True)
class TableInfo:
    """Summary of a table, from its live files."""

    name: str
    #: the newest version
    version: int
    versions: tuple[int, ...]
    rows: int
    files: int
    bytes: int
    #: of its last change
    gsn: int
    #: set if its state is unknown
    stale: StaleSince | None = None


class Lake:
    """A view of a lake. It does not change until `refresh`."""

    def __init__(self, store: Store, memory: str | None = None) -> None:
        """`memory`: the limit of each query, in DuckDB's format: `4GB`. The default is half of the machine's memory."""
        self.store = store
        self.chain = Chain.open(store)
        self._memory = memory

    @classmethod
    def open(cls, lake: str | LakeConfig, memory: str | None = None) -> Lake:
        """Opens a lake by its URI (`/path`, `s3://bucket/prefix`, …) or by a group's config. Raises LakeError."""
        config = LakeConfig(uri=lake) if isinstance(lake, str) else lake
        found = cls(open_lake_store(config), memory)
        if found.chain.head.n == 0:
            raise LakeError(f"there is no lake at {config.uri}", hint="nothing has landed yet, or the URI is wrong")
        return found

    def refresh(self) -> int:
        """Reads new landings; returns the new last gsn."""
        self.chain.refresh()
        return self.gsn

    @property
    def gsn(self) -> int:
        """The gsn of the last transaction in view."""
        return self.chain.head.gsn

    def names(self) -> list[str]:
        """The full names of all tables: `source.namespace.table`."""
        return sorted({*self.chain.tables(), *(version.table for version in self.chain.versions.values())})

    def find(self, table: str) -> list[str]:
        """Full names that match: `table` is a full name or the last parts of one. Case is ignored if there is no
        exact match."""
        names = self.names()
        if table in names:
            return [table]
        for fold in (str, str.casefold):
            found = [name for name in names if f".{fold(name)}".endswith(f".{fold(table)}")]
            if found:
                return found
        return []

    def name(self, table: str) -> str:
        """The full name of the one table that matches. Raises LakeError for none or several."""
        found = self.find(table)
        if len(found) == 1:
            return found[0]
        if found:
            raise LakeError(f"{table!r} matches several tables: {', '.join(found)}", hint="give more of the name")
        names = self.names()
        known = {one.casefold(): one for name in names for one in (name, name.rsplit(".", 1)[-1])}
        near = [known[one] for one in difflib.get_close_matches(table.casefold(), known)]
        hint = f"did you mean {' or '.join(near)}?" if near else "`tables` lists its tables"
        raise LakeError(f"the lake has no table {table!r}", hint=hint)

    def tables(self) -> list[TableInfo]:
        numbers: dict[str, set[int]] = {}
        for version in self.chain.versions.values():
            numbers.setdefault(version.table, set()).add(version.version)
        found, stale = [], stale_now(self.chain)
        # a table that is stale may have nothing else in the lake yet
        for name in sorted({*self.names(), *stale}):
            total, versions = self.chain.summary(name), tuple(sorted(numbers.get(name, {0})))
            sizes = (total.rows, total.files, total.bytes, total.gsn_max)
            found.append(TableInfo(name, versions[-1], versions, *sizes, stale.get(name)))
        return found

    def versions(self, table: str) -> list[LakeTable]:
        """All versions of a table, the oldest first."""
        return [lake_table(self.chain.versions[id_].avro) for id_ in versions_of(self.chain, self.name(table))]

    def at(self, as_of: AsOf | None = None) -> Version:
        """One version of all tables, for consistent joins. `as_of` is a gsn, or a time with a time zone.

        A time means the last gsn such that no transaction at or below it committed later.
        """
        return Version(self, resolve(self.chain, as_of))

    def state(
        self,
        table: str,
        as_of: AsOf | None = None,
        columns: Sequence[str] | None = None,
        *,
        allow_stale: bool = False,
    ) -> State:
        """The latest row of each key of a table. `columns` may include CDC columns, which are of the row's last change.

        Raises StaleTableError if the state is unknown because a copy has not landed yet, unless `allow_stale`: then
        the available rows are returned.
        """
        name = self.name(table)
        plan = plan_state(self.chain, name, resolve(self.chain, as_of), allow_stale=allow_stale)
        return State(self.store, plan, columns, self._memory)

    def changes(
        self, table: str, after_gsn: int = 0, to_gsn: int | None = None, columns: Sequence[str] | None = None
    ) -> Changes:
        """The changes of a table with after_gsn < gsn ≤ to_gsn, with all or the given columns."""
        name, to = self.name(table), resolve(self.chain, to_gsn)
        streams = [f for f in all_files(self.chain, name, Layer.STREAM) if f.gsn_max > after_gsn]
        check_history(self.chain, name, after_gsn, streams)
        files = [file for file in streams if file.gsn_min <= to]
        union = union_for(self.chain, name, files, to)
        return Changes(self.store, name, union, files, after_gsn, to, columns)


class Version:
    """All tables at one gsn."""

    def __init__(self, lake: Lake, gsn: int) -> None:
        self.lake = lake
        self.gsn = gsn

    def state(self, table: str, columns: Sequence[str] | None = None, *, allow_stale: bool = False) -> State:
        return self.lake.state(table, self.gsn, columns, allow_stale=allow_stale)

    def changes(self, table: str, after_gsn: int = 0, columns: Sequence[str] | None = None) -> Changes:
        """Up to this version."""
        return self.lake.changes(table, after_gsn, self.gsn, columns)
