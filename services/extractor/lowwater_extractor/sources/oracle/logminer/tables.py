"""The captured tables by name, for LogMiner's rows: read again after DDL."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lowwater_extractor.sources.oracle.dictionary import TableVersion

#: (scn, `OWNER.TABLE`) → the table as it was then; none if it was not there
ReadOne = Callable[[int, str], list[TableVersion]]
Wants = Callable[[str, str], bool]


class MinedTables:
    """LogMiner names tables and columns by the newest dictionary, so one version of each is known at a time."""

    def __init__(self, versions: Iterable[TableVersion], wants: Wants, read: ReadOne) -> None:
        self._wants = wants
        self._read = read
        self._known: dict[tuple[str, str], TableVersion | None] = {}
        self._objects: dict[int, tuple[str, str]] = {}
        #: tables with DDL → its SCN: read again at the first row behind it
        self._stale: dict[tuple[str, str], int] = {}
        for version in versions:
            self._learn((version.owner, version.table), version)

    def find(self, owner: str, table: str, scn: int) -> TableVersion | None:
        name = (owner, table)
        if name in self._known and scn <= self._stale.get(name, scn):
            return self._known[name]
        if not self._wants(owner, table):
            return None
        self._stale.pop(name, None)
        # a row of this SCN has just been changed, so the table was there
        found = self._read(scn, f"{owner}.{table}")
        self._learn(name, found[0] if found else None)
        return self._known[name]

    def is_captured(self, object_number: int) -> bool:
        return object_number in self._objects

    def altered(self, owner: str, table: str, scn: int) -> None:
        if self._wants(owner, table):
            self._stale[(owner, table)] = scn

    def _learn(self, name: tuple[str, str], version: TableVersion | None) -> None:
        self._known[name] = version
        if version is not None:
            # objects of older versions stay: their rows may still come
            self._objects |= dict.fromkeys(version.object_ids, name)
