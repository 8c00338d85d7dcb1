"""The dictionary of a live database: stored in Kafka, and read again after DDL.

A table's definition after DDL is read as of that DDL's commit, and is valid for all commits above it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from lowwater_extractor.sources.oracle.altered_tables import Followed, captured_names, why_stale
from lowwater_extractor.sources.oracle.ddl import Ddl, Effect, Name
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.dictionary.file import FORMAT, table_from_json, table_to_json
from lowwater_extractor.sources.oracle.scn import NEWEST, Scn

_PREFIX = "dictionary/"
_NEWEST = f"{_PREFIX}newest"
_Object = tuple[int, int]
Check = Callable[[TableVersion], None]
#: interval between comparisons of all names' objects with the database
VERIFY_SECONDS = 60.0
#: above every SCN


class Live(Protocol):
    """The queries of the database's dictionary."""

    def read(self, scn: Scn, only: str = "") -> list[TableVersion]:
        """The table `OWNER.TABLE` as of this SCN; empty if it did not exist."""
        ...

    @property
    def owners(self) -> Sequence[str]:
        """The owners of captured tables."""
        ...

    def wants(self, owner: str, table: str) -> bool:
        """Whether the table is captured."""
        ...

    def name_of(self, object_id: int, scn: Scn) -> str | None:
        """`OWNER.TABLE` of a captured table or partition with this object; None for any other object."""
        ...

    def name_of_data(self, data_object: int, scn: Scn) -> str | None:
        """`OWNER.TABLE` of the captured table whose rows are in this data object; None for any other data object."""
        ...

    def identities(self) -> tuple[int, dict[str, int]]:
        """The current SCN, and the object of each captured table's name at that SCN."""
        ...

    def newest_object(self) -> int:
        """The highest object number in use."""
        ...


class FollowedDictionary(Dictionary):
    def __init__(
        self, versions: Iterable[TableVersion], live: Live, newest: int, check: Check = lambda _: None
    ) -> None:
        """`check` raises if a table cannot be captured; it is called for each table that is new or was altered."""
        self._check = check
        #: Objects above this number are newer than the dictionary: rows of all of them are read, and their tables are
        #: queried at the commit. So new tables and partitions are captured from their first row on.
        self.newest = newest
        self._foreign: set[_Object] = set()
        #: data objects that were queried since the last DDL → the table, or None
        self._data: dict[int, str | None] = {}
        #: objects with DDL → the SCN of its record
        self._altered: dict[_Object, int] = {}
        #: objects that no longer have a captured name → the SCN above which that holds
        self._gone: dict[_Object, int] = {}
        #: objects with changes that are not in a note yet
        self._new: set[_Object] = set()
        self._live = live
        #: the last result of `identities`: it is compared when the log has been read to its SCN
        self._expected: tuple[int, dict[str, int]] | None = None
        self._verified_at = -VERIFY_SECONDS
        super().__init__(versions)

    @classmethod
    def remembered(
        cls, source: str, notes: Mapping[str, bytes], live: Live, check: Check = lambda _: None
    ) -> FollowedDictionary:
        known = notes.get(_NEWEST)
        found = cls((), live, live.newest_object() if known is None else int(known), check)
        for name, value in sorted(notes.items()):
            if name.startswith(_PREFIX) and name != _NEWEST:
                found._recall(source, name, json.loads(value))
        found._new.clear()
        return found

    def _recall(self, source: str, name: str, raw: Any) -> None:
        where = f"the saved {name}"
        versions = [table_from_json(source, one, where) for one in raw["versions"]]
        for version in versions:
            self.add(version)
        object_ = (versions[0].container, versions[0].object_id)
        if raw["altered"] is not None:
            self._altered[object_] = raw["altered"]
        if raw.get("gone") is not None:
            self._gone[object_] = raw["gone"]

    def add(self, version: TableVersion) -> None:
        super().add(version)
        self._new.add((version.container, version.object_id))

    def notes(self) -> dict[str, bytes]:
        """The notes with all changes since the last call."""
        found = {_NEWEST: str(self.newest).encode()} if self._new else {}
        for object_ in sorted(self._new):
            versions = [v for v in self if (v.container, v.object_id) == object_]
            raw = {
                "format": FORMAT,
                "versions": [table_to_json(version) for version in versions],
                "altered": self._altered.get(object_),
                "gone": self._gone.get(object_),
            }
            found[f"{_PREFIX}{object_[0]}.{object_[1]}"] = json.dumps(raw).encode()
        self._new.clear()
        return found

    # -- DDL

    def names(self, container: int, object_id: int, statement: Ddl) -> set[str]:
        """The captured tables that a statement may affect; empty: it affects none."""
        known = self.find(container, object_id, NEWEST)
        if known is not None and (container, known.object_id) in self._gone:
            known = None
        named = captured_names([statement.other], self._live.owners, self._live.wants)
        if statement.cascades:
            named |= {v.full_name for v in self.current() if not statement.owner or v.owner == statement.owner}
        if known is not None:
            return named | {known.full_name}
        return named | captured_names(statement.tables, self._live.owners, self._live.wants)

    def after(self, container: int, object_id: int, statement: Ddl, scn: Scn) -> Followed:
        """Read the affected tables again after a statement that committed at `scn`."""
        self._foreign.discard((container, object_id))
        self._data.clear()
        is_known = self.find(container, object_id, scn) is not None or not statement.tables
        if not is_known and statement.effect in (Effect.EMPTIED, Effect.RENAMED):
            # no change was published for an object that is not in the dictionary
            statement = statement._replace(effect=Effect.ROWS)
        before = {version.full_name: version for version in self.current()}
        after = {name: self._read(scn, name) for name in sorted(self.names(container, object_id, statement))}
        stale, joined = {}, set()
        for name, found in after.items():
            # first the tables that lost their name: another object may have it now
            if not found and name in before:
                self._leave((before[name].container, before[name].object_id), scn)
        for name, found in after.items():
            now = found[0] if found else None
            is_new = now is not None and now.object_id > self.newest
            if why := why_stale(before.get(name), now, statement, is_new=is_new):
                stale[name] = why
            if now is not None:
                if not is_new and self.find(now.container, now.object_id, scn) is None:
                    joined.add(name)
                old = before.get(name)
                if old is not None and old.object_id != now.object_id:
                    self._leave((old.container, old.object_id), scn)
                self._gone.pop((now.container, now.object_id), None)
                self._altered.pop((now.container, now.object_id), None)
                self.add(now.since(Scn(scn + 1)))
        return Followed(stale, joined, tuple(found[0] for found in after.values() if found))

    def loaded(self, container: int, data_object: int, scn: Scn) -> str | None:
        """The captured table that blocks were loaded into; None: another one, or one that is still being created."""
        for version in self.current():
            if version.container == container and data_object in (version.data_object_ids or version.object_ids):
                return version.full_name
        if data_object not in self._data:
            self._data[data_object] = self._live.name_of_data(data_object, scn)
        return self._data[data_object]

    def _read(self, scn: Scn, name: str) -> list[TableVersion]:
        found = self._live.read(scn, name)
        for version in found:
            self._check(version)
        return found

    def verify(self, scn: Scn) -> Followed | None:
        """All threads are read up to `scn`: compare the objects of all names with the database's at that SCN.

        Every statement that gives a name another object should be in the log. If one is not, or was not understood, it
        is detected here, with a delay of about `VERIFY_SECONDS`.
        """
        if self._expected is None:
            if time.monotonic() - self._verified_at >= VERIFY_SECONDS:
                self._expected = self._live.identities()
            return None
        at, objects = self._expected
        if scn < at:
            return None
        self._expected, self._verified_at = None, time.monotonic()
        known = {version.full_name: version.object_id for version in self.current()}
        others = [name for name, number in known.items() if objects.get(name, number) != number]
        if not others:
            return None
        names = tuple(Name(*name.split(".", 1)) for name in others)
        return self.after(0, 0, Ddl(Effect.ROWS, "a statement that was not found in the log", names), Scn(at))

    def _leave(self, object_: _Object, scn: Scn) -> None:
        self._gone[object_] = scn
        self._new.add(object_)

    def current(self) -> list[TableVersion]:
        """The last version of each table that still has its name."""
        return [v for v in self.last() if (v.container, v.object_id) not in self._gone]

    def is_foreign(self, container: int, object_id: int, scn: Scn) -> bool:
        if self._gone:
            known = self.find(container, object_id, scn)
            if known is not None and scn > self._gone.get((container, known.object_id), scn):
                return True
        if object_id <= self.newest or (container, object_id) in self._foreign:
            return object_id > self.newest
        if self.find(container, object_id, scn) is None:
            name = self._live.name_of(object_id, scn)
            for version in self._read(scn, name) if name is not None else ():
                # the version before is still valid for the table's other objects
                self._gone.pop((version.container, version.object_id), None)
                self.add(version.since(scn))
            if self.find(container, object_id, scn) is None:
                self._foreign.add((container, object_id))
                return True
        return False

    def span(self, container: int, object_id: int, scn: Scn) -> tuple[TableVersion, int, int]:
        known = self.table(container, object_id, scn)
        table = (container, known.object_id)
        since = self._altered.get(table)
        if since is not None and scn > since:
            for version in self._read(scn, known.full_name):
                # it is valid from the DDL on: DDL waits for the end of all changes of its table
                self.add(version.since(Scn(since + 1)))
            del self._altered[table]
            self._new.add(table)
        return super().span(container, object_id, scn)
