"""The dictionary of a live database: remembered in Kafka, and after DDL read again.

What a table is from a DDL on is asked for with the first change behind it, as of that change's commit: the DDL's own
commit lies in between. That there was one is remembered with the marks that lie behind it, so a restart asks, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from lowwater_extractor.sources.oracle.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.dictionary_file import FORMAT, table_from_json, table_to_json

_PREFIX = "dictionary/"
_NEWEST = f"{_PREFIX}newest"
_Object = tuple[int, int]


class Live(Protocol):
    """What is asked of the database."""

    def read(self, scn: int, only: str = "") -> list[TableVersion]:
        """The table `OWNER.TABLE` as it was at this SCN; none if it was not there."""
        ...

    def name_of(self, object_id: int, scn: int) -> str | None:
        """`OWNER.TABLE` of an object that is a captured table, or a partition of one; None of any other."""
        ...

    def newest_object(self) -> int:
        """The highest object number in use."""
        ...


class FollowedDictionary(Dictionary):
    def __init__(self, versions: Iterable[TableVersion], live: Live, newest: int) -> None:
        #: objects above this number are younger than the dictionary: rows of all of them are taken, and who they are
        #: is asked when they have committed. So no partition and no table is too young to be captured
        self.newest = newest
        self._foreign: set[_Object] = set()
        #: objects with DDL → the SCN of its record
        self._altered: dict[_Object, int] = {}
        #: objects of which something is to be remembered
        self._new: set[_Object] = set()
        self._live = live
        super().__init__(versions)

    @classmethod
    def remembered(cls, source: str, notes: Mapping[str, bytes], live: Live) -> FollowedDictionary:
        known = notes.get(_NEWEST)
        found = cls((), live, live.newest_object() if known is None else int(known))
        for name, value in sorted(notes.items()):
            if name.startswith(_PREFIX) and name != _NEWEST:
                found._recall(source, name, json.loads(value))
        found._new.clear()
        return found

    def _recall(self, source: str, name: str, raw: Any) -> None:
        where = f"the remembered {name}"
        versions = [table_from_json(source, one, where) for one in raw["versions"]]
        for version in versions:
            self.add(version)
        if raw["altered"] is not None:
            self._altered[(versions[0].container, versions[0].object_id)] = raw["altered"]

    def add(self, version: TableVersion) -> None:
        super().add(version)
        self._new.add((version.container, version.object_id))

    def notes(self) -> dict[str, bytes]:
        """What is to be remembered and was not yet."""
        found = {_NEWEST: str(self.newest).encode()} if self._new else {}
        for object_ in sorted(self._new):
            versions = [v for v in self if (v.container, v.object_id) == object_]
            raw = {
                "format": FORMAT,
                "versions": [table_to_json(version) for version in versions],
                "altered": self._altered.get(object_),
            }
            found[f"{_PREFIX}{object_[0]}.{object_[1]}"] = json.dumps(raw).encode()
        self._new.clear()
        return found

    def altered(self, container: int, object_id: int, scn: int) -> None:
        # of a partition it is the table's
        table = self.table(container, object_id, scn).object_id
        self._altered[(container, table)] = scn
        self._new.add((container, table))

    def is_foreign(self, container: int, object_id: int, scn: int) -> bool:
        if object_id <= self.newest or (container, object_id) in self._foreign:
            return object_id > self.newest
        if self.find(container, object_id, scn) is None:
            name = self._live.name_of(object_id, scn)
            for version in self._live.read(scn, name) if name is not None else ():
                # what the table was before holds for the objects that it had before
                self.add(version.since(scn))
            if self.find(container, object_id, scn) is None:
                self._foreign.add((container, object_id))
                return True
        return False

    def span(self, container: int, object_id: int, scn: int) -> tuple[TableVersion, int, int]:
        known = self.table(container, object_id, scn)
        table = (container, known.object_id)
        since = self._altered.get(table)
        if since is not None and scn > since:
            for version in self._live.read(scn, known.full_name):
                # it holds from the DDL on: a table's changes end before its DDL begins
                self.add(version.since(since + 1))
            del self._altered[table]
            self._new.add(table)
        return super().span(container, object_id, scn)
