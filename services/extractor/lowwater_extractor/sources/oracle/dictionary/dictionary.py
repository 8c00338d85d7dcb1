"""What the log does not say: which object is which table, and what its columns are, from which SCN on.

A table version holds from its SCN until the next one of the same object. Rows name an object, in its container; the
partitions of a table are objects of their own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lowwater.codec.table import Column, TableSchema
from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater_extractor.sources.oracle.redo.layout import OBJECT_MAX
from lowwater_extractor.sources.oracle.types import OracleColumn, published_type, why_unreadable

#: supplemental logging of a table: what the log says of a row beside what was changed in it
ALL, PRIMARY_KEY, UNIQUE, FOREIGN_KEY = "all", "primary key", "unique", "foreign key"

#: why such a table's rows cannot be read from redo
_REFUSED = {
    "is_index_organized": "index-organized: its rows are in an index",
    "is_clustered": "in a cluster: its rows share their blocks with other tables, and lack the cluster's key",
    "is_compressed": "compressed: its rows are in the log as the block compressed them",
}


@dataclass(frozen=True, slots=True)
class TableVersion:
    """One table from one SCN on."""

    source: str
    owner: str
    table: str
    object_id: int
    columns: tuple[OracleColumn, ...]
    container: int = 0
    from_scn: int = 0
    #: the names of the key's columns: the primary key, or a unique one whose columns are never null
    key: tuple[str, ...] = ()
    #: under what the records file it; empty: the owner
    namespace: str = ""
    #: of its partitions and subpartitions, each an object of its own
    partition_ids: tuple[int, ...] = ()
    #: where the rows are: changes with TRUNCATE and MOVE, while the object stays
    data_object_ids: tuple[int, ...] = ()
    #: ALL, PRIMARY_KEY, …, and the names of user-defined log groups
    supplemental: tuple[str, ...] = ()
    is_index_organized: bool = False
    is_clustered: bool = False
    is_compressed: bool = False
    #: NOLOGGING: what is loaded by direct path leaves no rows in the log
    is_unlogged: bool = False
    #: the published form; made from the rest, with version 0: the runtime numbers versions
    schema: TableSchema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        visible = self.visible
        columns = tuple(Column(c.name, published_type(c), c.nullable or bool(why_unreadable(c))) for c in visible)
        schema = TableSchema(self.source, self.namespace or self.owner, self.table, 0, columns, self.key)
        object.__setattr__(self, "schema", schema)
        self._check()

    @property
    def full_name(self) -> str:
        return f"{self.owner}.{self.table}"

    @property
    def visible(self) -> tuple[OracleColumn, ...]:
        """Those that are published, in the table's order: virtual and hidden ones are not."""
        return tuple(c for c in self.columns if c.number and not c.is_hidden)

    @property
    def stored(self) -> tuple[OracleColumn, ...]:
        """All that rows have, in the rows' order."""
        return tuple(sorted((c for c in self.columns if c.number), key=lambda c: c.number))

    @property
    def object_ids(self) -> tuple[int, ...]:
        return (self.object_id, *self.partition_ids)

    @property
    def logs_all(self) -> bool:
        return ALL in self.supplemental

    @property
    def not_in_log(self) -> dict[str, str]:
        """Columns that are always `unchanged`, and why."""
        return {c.name: why for c in self.visible if (why := why_unreadable(c))}

    def since(self, scn: int) -> TableVersion:
        """The same from another SCN on."""
        return replace(self, from_scn=scn)

    def log_statement(self) -> str:
        """The statement that makes the log say enough of this table's updates."""
        what = "PRIMARY KEY" if self.key else "ALL"
        return f'ALTER TABLE "{self.owner}"."{self.table}" ADD SUPPLEMENTAL LOG DATA ({what}) COLUMNS'

    def _check(self) -> None:
        numbers = [c.number for c in self.stored]
        if numbers != list(range(1, len(numbers) + 1)):
            raise self._wrong(f"its segment columns are {numbers}, not 1 to {len(numbers)}")
        names = [c.name for c in self.visible]
        if len(set(names)) != len(names):
            raise self._wrong("two columns have one name")
        if missing := [name for name in self.key if name not in names]:
            raise self._wrong(f"its key has columns that it does not have: {', '.join(missing)}")

    def _wrong(self, what: str) -> StartRefusedError:
        return StartRefusedError(
            f"{self.full_name} (object {self.object_id}, from SCN {self.from_scn}): {what}",
            source=self.source,
            hint="the dictionary contradicts itself: make it anew",
        )


def refuse_unsupported(version: TableVersion) -> None:
    for flag, why in _REFUSED.items():
        if getattr(version, flag):
            raise StartRefusedError(
                f"{version.full_name} cannot be captured by redo: it is {why}",
                source=version.source,
                hint="take the table out of `tables`, or capture it by LogMiner in a source of its own",
            )


class Dictionary:
    """Captured tables by object, in their versions."""

    #: objects above this number may be captured, too: nobody knows yet who they are. Here all are known
    newest: int = OBJECT_MAX

    def __init__(self, versions: Iterable[TableVersion] = ()) -> None:
        #: another after each change of what is captured: of objects, not of columns
        self.revision = 0
        #: (container, object) → its versions' first SCNs, and the versions, both rising
        self._by_object: dict[tuple[int, int], tuple[list[int], list[TableVersion]]] = {}
        self._versions: list[TableVersion] = []
        for version in versions:
            self.add(version)

    def add(self, version: TableVersion) -> None:
        """From its SCN on; one with the same object and SCN takes the place of the one before."""
        refuse_unsupported(version)
        same = (version.container, version.object_id, version.from_scn)
        self._versions = [v for v in self._versions if (v.container, v.object_id, v.from_scn) != same]
        self._versions.append(version)
        for object_id in version.object_ids:
            if (version.container, object_id) not in self._by_object:
                self.revision += 1
            scns, versions = self._by_object.setdefault((version.container, object_id), ([], []))
            at = bisect_right(scns, version.from_scn)
            if at and scns[at - 1] == version.from_scn:
                versions[at - 1] = version
            else:
                scns.insert(at, version.from_scn)
                versions.insert(at, version)

    def find(self, container: int, object_id: int, scn: int) -> TableVersion | None:
        found = self._by_object.get((container, object_id))
        if found is None:
            return None
        at = bisect_right(found[0], scn)
        return found[1][at - 1] if at else None

    def table(self, container: int, object_id: int, scn: int) -> TableVersion:
        found = self.find(container, object_id, scn)
        if found is None:
            raise LogUnknownError(
                f"object {object_id} of container {container} is not in the dictionary at SCN {scn}",
                position=str(scn),
                hint="the dictionary must reach back to the start of capture: read it at that SCN, or reset the source",
            )
        return found

    def is_foreign(self, container: int, object_id: int, scn: int) -> bool:
        """Is this object known not to be captured? One that nobody knows is an error, not a stranger."""
        return False

    def span(self, container: int, object_id: int, scn: int) -> tuple[TableVersion, int, int]:
        """The version, and the SCNs from which and before which it holds."""
        version = self.table(container, object_id, scn)
        scns, _ = self._by_object[(container, object_id)]
        at = bisect_right(scns, scn)
        return version, scns[at - 1], scns[at] if at < len(scns) else 1 << 64

    def objects(self) -> dict[int, frozenset[int]]:
        """What is captured: the objects of each container."""
        found: dict[int, set[int]] = {}
        for container, object_id in self._by_object:
            found.setdefault(container, set()).add(object_id)
        return {container: frozenset(ids) for container, ids in found.items()}

    def last(self) -> list[TableVersion]:
        """Each table's last version."""
        by_table: dict[tuple[int, int], TableVersion] = {}
        for version in sorted(self._versions, key=lambda v: v.from_scn):
            by_table[(version.container, version.object_id)] = version
        return list(by_table.values())

    def __iter__(self) -> Iterator[TableVersion]:
        return iter(sorted(self._versions, key=lambda v: (v.container, v.object_id, v.from_scn)))

    def __len__(self) -> int:
        return len(self._versions)


def with_options(version: TableVersion, as_text: frozenset[str], replace_bad: frozenset[str]) -> TableVersion:
    """With what the operator wants of single columns: `owner.table.column`."""
    columns = tuple(
        replace(
            c,
            as_text=c.as_text or f"{version.full_name}.{c.name}" in as_text,
            on_bad_text="replace" if f"{version.full_name}.{c.name}" in replace_bad else c.on_bad_text,
        )
        for c in version.columns
    )
    return replace(version, columns=columns)
