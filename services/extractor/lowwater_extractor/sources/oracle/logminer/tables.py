"""The captured tables by name, for LogMiner's rows: read again after DDL, and checked when they are read first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from lowwater_extractor.sources.oracle.altered_tables import captured_names, why_stale
from lowwater_extractor.sources.oracle.ddl import Ddl, Name
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.scn import Scn

#: (scn, `OWNER.TABLE`) → the table as of that SCN; an empty list if it did not exist
ReadOne = Callable[[Scn, str], list[TableVersion]]
Wants = Callable[[str, str], bool]
Check = Callable[[TableVersion], None]


class MinedTables:
    """LogMiner shows tables and columns by the current dictionary, so one version of each table is kept."""

    def __init__(
        self,
        versions: Iterable[TableVersion],
        wants: Wants,
        read: ReadOne,
        *,
        owners: Sequence[str] = (),
        check: Check = lambda _: None,
    ) -> None:
        """`check` raises if a table cannot be captured; it is called for each table that is new or was altered."""
        self._wants = wants
        self._read_one = read
        self._owners = owners
        self._check = check
        self._known: dict[tuple[str, str], TableVersion | None] = {}
        self._objects: dict[int, tuple[str, str]] = {}
        for version in versions:
            check(version)
            self._learn((version.owner, version.table), version)

    def _read(self, scn: Scn, name: str) -> TableVersion | None:
        found = self._read_one(scn, name)
        for version in found:
            self._check(version)
        return found[0] if found else None

    def find(self, owner: str, table: str, scn: Scn) -> TableVersion | None:
        name = (owner, table)
        if name in self._known:
            return self._known[name]
        if not self._wants(owner, table):
            return None
        # a row was changed at this SCN, so the table existed then
        self._learn(name, self._read(scn, f"{owner}.{table}"))
        return self._known[name]

    def name_of(self, object_number: int) -> tuple[str, str] | None:
        """The captured table with this object when it was read last; LogMiner itself shows the current name."""
        return self._objects.get(object_number)

    def is_captured(self, object_number: int) -> bool:
        return object_number in self._objects

    def named(self, names: Iterable[Name | None], statement: Ddl) -> set[str]:
        """The captured tables that a statement affects."""
        found = captured_names(names, self._owners, self._wants)
        if statement.cascades:
            found |= {v.full_name for v in self._known.values() if v and statement.owner in ("", v.owner)}
        return found

    def after(self, names: Iterable[str], statement: Ddl, scn: Scn) -> dict[str, str]:
        """Read the tables again after a statement that committed at `scn`: tables that are stale → why."""
        stale = {}
        for full_name in sorted(names):
            owner, _, table = full_name.partition(".")
            before, now = self._known.get((owner, table)), self._read(scn, full_name)
            if why := why_stale(before, now, statement, is_new=before is None):
                stale[full_name] = why
            if before is not None and (now is None or now.object_id != before.object_id):
                # the old object no longer belongs to this name
                self._objects = {o: name for o, name in self._objects.items() if name != (owner, table)}
            self._learn((owner, table), now)
            if now is None:
                # it may be created again: `find` then reads it
                del self._known[(owner, table)]
        return stale

    def _learn(self, name: tuple[str, str], version: TableVersion | None) -> None:
        self._known[name] = version
        if version is not None:
            # objects of older versions are retained: their rows may still follow
            self._objects |= dict.fromkeys(version.object_ids, name)
