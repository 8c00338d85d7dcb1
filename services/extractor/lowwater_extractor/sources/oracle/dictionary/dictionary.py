"""The tables of objects and their columns, by SCN: they are not in the log.

A table version is valid from its SCN until the next version of the same object. Rows in the log contain a container and
an object; each partition of a table is an object of its own.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from lowwater.codec.table import Column, TableSchema
from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater_extractor.sources.oracle.redo.layout import OBJECT_MAX
from lowwater_extractor.sources.oracle.scn import LOWEST, Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, published_type, why_unreadable

#: supplemental logging of a table: the columns that are logged in addition to the changed ones
ALL, PRIMARY_KEY, UNIQUE, FOREIGN_KEY = "all", "primary key", "unique", "foreign key"

#: why the rows of a table with this flag cannot be read from redo
_REFUSED = {
    "is_index_organized": "index-organized: its rows are in an index",
    "is_clustered": "in a cluster: its rows share their blocks with other tables, and lack the cluster's key",
    "is_compressed": "compressed: its rows are in the log as the block compressed them",
}


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The definition of one table from one SCN on."""

    source: str
    owner: str
    table: str
    object_id: int
    columns: tuple[OracleColumn, ...]
    container: int = 0
    from_scn: Scn = LOWEST
    #: the columns of the primary key, or of a unique key whose columns are never null
    key: tuple[str, ...] = ()
    #: the namespace in records; empty: the owner
    namespace: str = ""
    #: objects of its partitions and subpartitions
    partition_ids: tuple[int, ...] = ()
    #: the segments with the rows: they change with TRUNCATE and MOVE, the object does not
    data_object_ids: tuple[int, ...] = ()
    #: ALL, PRIMARY_KEY, …, and the names of user-defined log groups
    supplemental: tuple[str, ...] = ()
    is_index_organized: bool = False
    is_clustered: bool = False
    is_compressed: bool = False
    #: NOLOGGING: rows that are loaded by direct path are not in the log
    is_unlogged: bool = False
    #: the published schema, derived from the other fields, with version 0: the runtime assigns version numbers
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
        """The published columns, in the table's order: all but virtual and hidden ones."""
        return tuple(c for c in self.columns if c.number and not c.is_hidden)

    @property
    def stored(self) -> tuple[OracleColumn, ...]:
        """All columns in rows, in the order of the rows."""
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

    def since(self, scn: Scn) -> TableVersion:
        """The same version, valid from another SCN on."""
        return replace(self, from_scn=scn)

    def log_statement(self) -> str:
        """The statement that adds the supplemental logging that this table needs."""
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
            hint="the dictionary is inconsistent: create it again",
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

    #: objects above this number may be captured, too: they are newer than the dictionary. Here none is
    newest: int = OBJECT_MAX

    def __init__(self, versions: Iterable[TableVersion] = ()) -> None:
        #: increases with each change of the captured objects (not of columns)
        self.revision = 0
        #: (container, object) → the first SCNs of its versions, and the versions, both ascending
        self._by_object: dict[tuple[int, int], tuple[list[int], list[TableVersion]]] = {}
        self._versions: list[TableVersion] = []
        for version in versions:
            self.add(version)

    def add(self, version: TableVersion) -> None:
        """Add a version from its SCN on. It replaces a version with the same object and SCN."""
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

    def find(self, container: int, object_id: int, scn: Scn) -> TableVersion | None:
        found = self._by_object.get((container, object_id))
        if found is None:
            return None
        at = bisect_right(found[0], scn)
        return found[1][at - 1] if at else None

    def table(self, container: int, object_id: int, scn: Scn) -> TableVersion:
        found = self.find(container, object_id, scn)
        if found is None:
            raise LogUnknownError(
                f"object {object_id} of container {container} is not in the dictionary at SCN {scn}",
                position=str(scn),
                hint="the dictionary must reach back to the start of capture: read it at that SCN, or reset the source",
            )
        return found

    def is_foreign(self, container: int, object_id: int, scn: Scn) -> bool:
        """Whether this object is known not to be captured. Here False: an unknown object is an error in `table`."""
        return False

    def span(self, container: int, object_id: int, scn: Scn) -> tuple[TableVersion, int, int]:
        """The version, and the SCNs from which (included) and up to which (excluded) it is valid."""
        version = self.table(container, object_id, scn)
        scns, _ = self._by_object[(container, object_id)]
        at = bisect_right(scns, scn)
        return version, scns[at - 1], scns[at] if at < len(scns) else 1 << 64

    def objects(self) -> dict[int, frozenset[int]]:
        """The captured objects of each container."""
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
    """The version with the config's settings for single columns: `owner.table.column`."""
    columns = tuple(
        replace(
            c,
            as_text=c.as_text or f"{version.full_name}.{c.name}" in as_text,
            on_bad_text="replace" if f"{version.full_name}.{c.name}" in replace_bad else c.on_bad_text,
        )
        for c in version.columns
    )
    return replace(version, columns=columns)
