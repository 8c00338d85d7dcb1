"""The dictionary of a live database: remembered in Kafka, and after DDL read again.

What a table is from a DDL on is asked for with the first change behind it, as of that change's commit: the DDL's own
commit lies in between. That there was one is remembered with the marks that lie behind it, so a restart asks, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lowwater_extractor.sources.oracle.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.dictionary_file import FORMAT, table_from_json, table_to_json

#: (SCN, `OWNER.TABLE`) → the table as it was then; none if it was not there
ReadOne = Callable[[int, str], list[TableVersion]]

_PREFIX = "dictionary/"
_Object = tuple[int, int]


class FollowedDictionary(Dictionary):
    def __init__(self, versions: Iterable[TableVersion], read: ReadOne) -> None:
        #: objects with DDL → the SCN of its record
        self._altered: dict[_Object, int] = {}
        #: objects of which something is to be remembered
        self._new: set[_Object] = set()
        self._read = read
        super().__init__(versions)

    @classmethod
    def remembered(cls, source: str, notes: Mapping[str, bytes], read: ReadOne) -> FollowedDictionary:
        found = cls((), read)
        for name, value in sorted(notes.items()):
            if name.startswith(_PREFIX):
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
        found = {}
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

    def span(self, container: int, object_id: int, scn: int) -> tuple[TableVersion, int, int]:
        known = self.table(container, object_id, scn)
        table = (container, known.object_id)
        since = self._altered.get(table)
        if since is not None and scn > since:
            for version in self._read(scn, known.full_name):
                # it holds from the DDL on: a table's changes end before its DDL begins
                self.add(version.since(since + 1))
            del self._altered[table]
            self._new.add(table)
        return super().span(container, object_id, scn)
