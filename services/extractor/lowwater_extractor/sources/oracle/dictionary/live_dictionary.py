"""The dictionary of a live database: remembered in Kafka, and after DDL read again.

What a table is from a DDL on is asked for as of that DDL's commit, and holds for all commits above it.
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

_PREFIX = "dictionary/"
_NEWEST = f"{_PREFIX}newest"
_Object = tuple[int, int]
Check = Callable[[TableVersion], None]
#: so often the objects of all names are compared with the database's
VERIFY_SECONDS = 60.0
#: above every SCN
NEWEST = (1 << 64) - 1


class Live(Protocol):
    """What is asked of the database."""

    def read(self, scn: int, only: str = "") -> list[TableVersion]:
        """The table `OWNER.TABLE` as it was at this SCN; none if it was not there."""
        ...

    @property
    def owners(self) -> Sequence[str]:
        """Whose tables are captured."""
        ...

    def wants(self, owner: str, table: str) -> bool:
        """Is it captured?"""
        ...

    def name_of(self, object_id: int, scn: int) -> str | None:
        """`OWNER.TABLE` of an object that is a captured table, or a partition of one; None of any other."""
        ...

    def name_of_data(self, data_object: int, scn: int) -> str | None:
        """`OWNER.TABLE` of the captured table whose rows are in this data object; None: it is no such one's."""
        ...

    def identities(self) -> tuple[int, dict[str, int]]:
        """The current SCN, and the object that each captured table's name had then."""
        ...

    def newest_object(self) -> int:
        """The highest object number in use."""
        ...


class FollowedDictionary(Dictionary):
    def __init__(
        self, versions: Iterable[TableVersion], live: Live, newest: int, check: Check = lambda _: None
    ) -> None:
        """`check` refuses a table that cannot be captured: asked of each that joins later, or was altered."""
        self._check = check
        #: objects above this number are younger than the dictionary: rows of all of them are taken, and who they are
        #: is asked when they have committed. So no partition and no table is too young to be captured
        self.newest = newest
        self._foreign: set[_Object] = set()
        #: data objects that were asked for since the last DDL → the table, or None
        self._data: dict[int, str | None] = {}
        #: objects with DDL → the SCN of its record
        self._altered: dict[_Object, int] = {}
        #: objects that have no captured name any more → the SCN above which that is so
        self._gone: dict[_Object, int] = {}
        #: objects of which something is to be remembered
        self._new: set[_Object] = set()
        self._live = live
        #: what the database said that its names are, and at which SCN: looked at once that was read
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
        where = f"the remembered {name}"
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
        """What is to be remembered and was not yet."""
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
        """The captured tables that a statement can be about; none: it is about others."""
        known = self.find(container, object_id, NEWEST)
        if known is not None and (container, known.object_id) in self._gone:
            known = None
        named = captured_names([statement.other], self._live.owners, self._live.wants)
        if statement.cascades:
            named |= {v.full_name for v in self.current() if not statement.owner or v.owner == statement.owner}
        if known is not None:
            return named | {known.full_name}
        return named | captured_names(statement.tables, self._live.owners, self._live.wants)

    def after(self, container: int, object_id: int, statement: Ddl, scn: int) -> Followed:
        """A statement has committed at `scn`: what the tables that it is about are above that."""
        self._foreign.discard((container, object_id))
        self._data.clear()
        is_known = self.find(container, object_id, scn) is not None or not statement.tables
        if not is_known and statement.effect in (Effect.EMPTIED, Effect.RENAMED):
            # of an object that nobody knows here no change was published
            statement = statement._replace(effect=Effect.ROWS)
        before = {version.full_name: version for version in self.current()}
        after = {name: self._read(scn, name) for name in sorted(self.names(container, object_id, statement))}
        stale, joined = {}, set()
        for name, found in after.items():
            # first those that lost their name: another may have it now
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
                self.add(now.since(scn + 1))
        return Followed(stale, joined, tuple(found[0] for found in after.values() if found))

    def loaded(self, container: int, data_object: int, scn: int) -> str | None:
        """The captured table that blocks were loaded into; None: another, or one that a statement is still building."""
        for version in self.current():
            if version.container == container and data_object in (version.data_object_ids or version.object_ids):
                return version.full_name
        if data_object not in self._data:
            self._data[data_object] = self._live.name_of_data(data_object, scn)
        return self._data[data_object]

    def _read(self, scn: int, name: str) -> list[TableVersion]:
        found = self._live.read(scn, name)
        for version in found:
            self._check(version)
        return found

    def verify(self, scn: int) -> Followed | None:
        """All threads are read up to `scn`: do the names have the objects that they had in the database by then?

        Every statement that gives a name another object should be in the log. Should one not be (or not be understood),
        then this finds it, a little later.
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
        return self.after(0, 0, Ddl(Effect.ROWS, "a statement that was not found in the log", names), at)

    def _leave(self, object_: _Object, scn: int) -> None:
        self._gone[object_] = scn
        self._new.add(object_)

    def current(self) -> list[TableVersion]:
        """The last version of each table that still has its name."""
        return [v for v in self.last() if (v.container, v.object_id) not in self._gone]

    def is_foreign(self, container: int, object_id: int, scn: int) -> bool:
        if self._gone:
            known = self.find(container, object_id, scn)
            if known is not None and scn > self._gone.get((container, known.object_id), scn):
                return True
        if object_id <= self.newest or (container, object_id) in self._foreign:
            return object_id > self.newest
        if self.find(container, object_id, scn) is None:
            name = self._live.name_of(object_id, scn)
            for version in self._read(scn, name) if name is not None else ():
                # what the table was before holds for the objects that it had before
                self._gone.pop((version.container, version.object_id), None)
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
            for version in self._read(scn, known.full_name):
                # it holds from the DDL on: a table's changes end before its DDL begins
                self.add(version.since(since + 1))
            del self._altered[table]
            self._new.add(table)
        return super().span(container, object_id, scn)
