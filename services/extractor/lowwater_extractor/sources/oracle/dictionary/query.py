"""Reads the dictionary by SQL: tables, columns, keys, log groups and partitions, as of an SCN.

It is read from the SYS tables and not from the DBA_ views: only tables can be queried AS OF an SCN, and only they have
the column numbers that are in the log (SEGCOL#).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from lowwater.errors import SourceError, StartRefusedError
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.connect import Database
from lowwater_extractor.sources.oracle.dictionary.dictionary import (
    ALL,
    FOREIGN_KEY,
    PRIMARY_KEY,
    UNIQUE,
    TableVersion,
    with_options,
)
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import NATIONAL_FORM, OracleColumn, OracleType

SQL_SCN = "SELECT CURRENT_SCN FROM V$DATABASE"
#: required privileges: SELECT and FLASHBACK on each
SYS_TABLES = ("OBJ$", "TAB$", "COL$", "ECOL$", "CON$", "CDEF$", "CCOL$")

SQL_OWNERS = "SELECT USERNAME, USER_ID FROM DBA_USERS"
SQL_CHARSETS = """
SELECT PARAMETER, VALUE FROM NLS_DATABASE_PARAMETERS
WHERE PARAMETER IN ('NLS_CHARACTERSET', 'NLS_NCHAR_CHARACTERSET')"""
SQL_ZONE = "SELECT DBTIMEZONE FROM DUAL"
#: 2 table, 19 partition, 34 subpartition; without those in the recycle bin
SQL_OBJECTS = """
SELECT o.NAME, o.OBJ#, o.DATAOBJ#, o.TYPE# FROM SYS.OBJ$ AS OF SCN :scn o
WHERE o.OWNER# = :owner AND o.TYPE# IN (2, 19, 34) AND o.REMOTEOWNER IS NULL AND o.LINKNAME IS NULL
  AND BITAND(o.FLAGS, 128) = 0 ORDER BY o.OBJ#"""
SQL_TABLES = """
SELECT t.OBJ#, t.PROPERTY FROM SYS.TAB$ AS OF SCN :scn t
JOIN SYS.OBJ$ AS OF SCN :scn o ON o.OBJ# = t.OBJ# WHERE o.OWNER# = :owner AND o.TYPE# = 2"""
SQL_COLUMNS = """
SELECT c.OBJ#, c.NAME, c.INTCOL#, c.SEGCOL#, c.TYPE#, c.LENGTH, c.PRECISION#, c.SCALE, c.NULL$, c.PROPERTY,
       c.CHARSETFORM, c.COL#
FROM SYS.COL$ AS OF SCN :scn c JOIN SYS.OBJ$ AS OF SCN :scn o ON o.OBJ# = c.OBJ#
WHERE o.OWNER# = :owner AND o.TYPE# = 2 ORDER BY c.OBJ#, DECODE(c.COL#, 0, c.INTCOL#, c.COL#), c.INTCOL#"""
#: a BLOB: in SQL a RAW can have at most 2000 bytes of it
SQL_DEFAULTS = """
SELECT e.TABOBJ#, e.COLNUM, DBMS_LOB.SUBSTR(e.BINARYDEFVAL, 2000, 1), DBMS_LOB.GETLENGTH(e.BINARYDEFVAL), e.GUARD_ID
FROM SYS.ECOL$ AS OF SCN :scn e JOIN SYS.OBJ$ AS OF SCN :scn o ON o.OBJ# = e.TABOBJ# WHERE o.OWNER# = :owner"""
#: 2 primary key, 3 unique, 12 a named log group, 14 to 17 the table's own log groups
SQL_CONSTRAINTS = """
SELECT d.OBJ#, d.CON#, d.TYPE#, n.NAME, d.ENABLED, d.DEFER, k.INTCOL#
FROM SYS.CDEF$ AS OF SCN :scn d
JOIN SYS.OBJ$ AS OF SCN :scn o ON o.OBJ# = d.OBJ#
JOIN SYS.CON$ AS OF SCN :scn n ON n.CON# = d.CON#
LEFT JOIN SYS.CCOL$ AS OF SCN :scn k ON k.CON# = d.CON#
WHERE o.OWNER# = :owner AND d.TYPE# IN (2, 3, 12, 14, 15, 16, 17)
ORDER BY d.OBJ#, d.TYPE#, d.CON#, k.POS#"""
#: a partition has its table's name
SQL_NAME = """
SELECT u.USERNAME, o.NAME FROM SYS.OBJ$ AS OF SCN :scn o JOIN DBA_USERS u ON u.USER_ID = o.OWNER#
WHERE o.OBJ# = :object_id AND o.TYPE# IN (2, 19, 34) AND BITAND(o.FLAGS, 128) = 0"""
#: only committed segments: one that a statement is still creating has no row here yet
SQL_DATA_NAME = """
SELECT u.USERNAME, o.NAME FROM SYS.OBJ$ AS OF SCN :scn o JOIN DBA_USERS u ON u.USER_ID = o.OWNER#
WHERE o.DATAOBJ# = :data_object AND o.TYPE# IN (2, 19, 34) AND BITAND(o.FLAGS, 128) = 0"""
SQL_NEWEST = "SELECT MAX(OBJ#) FROM SYS.OBJ$"
SQL_COMPRESSED = """
SELECT TABLE_NAME FROM DBA_TABLES WHERE OWNER = :owner AND COMPRESSION = 'ENABLED'
UNION SELECT TABLE_NAME FROM DBA_TAB_PARTITIONS WHERE TABLE_OWNER = :owner AND COMPRESSION IN ('ENABLED', 'YES')
UNION SELECT TABLE_NAME FROM DBA_TAB_SUBPARTITIONS WHERE TABLE_OWNER = :owner AND COMPRESSION IN ('ENABLED', 'YES')"""
SQL_UNLOGGED = """
SELECT TABLE_NAME FROM DBA_TABLES WHERE OWNER = :owner AND LOGGING = 'NO'
UNION SELECT TABLE_NAME FROM DBA_TAB_PARTITIONS WHERE TABLE_OWNER = :owner AND LOGGING = 'NO'
UNION SELECT TABLE_NAME FROM DBA_TAB_SUBPARTITIONS WHERE TABLE_OWNER = :owner AND LOGGING = 'NO'"""
#: SecureFiles whose bytes in the log cannot be decoded
SQL_HIDDEN_LOBS = """
SELECT TABLE_NAME, COLUMN_NAME, ENCRYPT, COMPRESSION, DEDUPLICATION FROM DBA_LOBS
WHERE OWNER = :owner AND (ENCRYPT = 'YES' OR COMPRESSION IN ('LOW', 'MEDIUM', 'HIGH') OR DEDUPLICATION = 'LOB')"""

# TAB$.PROPERTY
_INDEX_ORGANIZED = 0x40
_OVERFLOW = 0x200
_CLUSTERED = 0x400
_NESTED = 0x2000
_TEMPORARY = 0x400000
# COL$.PROPERTY
_VIRTUAL = 0x8 | 0x10000
_HIDDEN = 0x20
_STORED_AS_LOB = 0x80
_GENERATED = 0x100
_UNUSED = 0x8000
_ENCRYPTED = 0x4000000
_GUARD = 1 << 39

_LOG_GROUPS = {14: PRIMARY_KEY, 15: UNIQUE, 16: FOREIGN_KEY, 17: ALL}
_DEFERRABLE = 0x1


class Environment(NamedTuple):
    """Settings of all columns of a container."""

    charset: str
    national_charset: str
    zone: str


class _Key(NamedTuple):
    is_primary: bool
    columns: tuple[int, ...]


class SqlDictionary:
    """The dictionary of a database. `database` is a session in the captured container."""

    def __init__(self, database: Database, config: OracleConfig, source: str, container: int = 0) -> None:
        self._database = database
        self._config = config
        self._source = source
        self._container = container
        self._environment: Environment | None = None

    @property
    def environment(self) -> Environment:
        if self._environment is None:
            found: dict[str, str] = dict(self._database.ask(SQL_CHARSETS))
            ((zone,),) = self._database.ask(SQL_ZONE)
            self._environment = Environment(found["NLS_CHARACTERSET"], found["NLS_NCHAR_CHARACTERSET"], zone)
        return self._environment

    @property
    def owners(self) -> list[str]:
        return self._config.owners

    def wants(self, owner: str, table: str) -> bool:
        return self._config.wants(owner, table)

    def read(self, scn: Scn, only: str = "") -> list[TableVersion]:
        """All captured tables as of `scn`, or only the table `OWNER.TABLE`."""
        numbers = {name: int(number) for name, number in self._database.ask(SQL_OWNERS)}
        owners = [only.partition(".")[0]] if only else self._config.owners
        missing = [owner for owner in owners if owner not in numbers]
        if missing and only:
            # its owner was dropped with it
            return []
        if missing:
            raise SourceError(
                f"there are no users {', '.join(missing)}",
                source=self._source,
                hint="`tables` are spelled as the dictionary has them: mostly in upper case",
            )
        found: list[TableVersion] = []
        for owner in owners:
            found += self._owned(owner, numbers[owner], scn, only.partition(".")[2])
        return found

    def name_of(self, object_id: int, scn: Scn) -> str | None:
        """`OWNER.TABLE` of a captured table or partition with this object; None for any other object."""
        for owner, name in self._database.ask(SQL_NAME, object_id=object_id, scn=scn):
            if self._config.wants(owner, name):
                return f"{owner}.{name}"
        return None

    def name_of_data(self, data_object: int, scn: Scn) -> str | None:
        """`OWNER.TABLE` of the captured table whose rows are in this data object; None for any other data object."""
        for owner, name in self._database.ask(SQL_DATA_NAME, data_object=data_object, scn=scn):
            if self._config.wants(owner, name):
                return f"{owner}.{name}"
        return None

    def identities(self) -> tuple[Scn, dict[str, int]]:
        """The current SCN, and the object of each captured table's name at that SCN."""
        ((number,),) = self._database.ask(SQL_SCN)
        scn = Scn(int(number))
        numbers = {name: int(number) for name, number in self._database.ask(SQL_OWNERS)}
        found: dict[str, int] = {}
        for owner in self._config.owners:
            if owner in numbers:
                tables, _, _ = self._objects(owner, numbers[owner], scn, "")
                found |= {f"{owner}.{name}": o for o, name in tables.items()}
        return scn, found

    def newest_object(self) -> int:
        ((newest,),) = self._database.ask(SQL_NEWEST)
        return int(newest)

    def _owned(self, owner: str, number: int, scn: Scn, only: str) -> list[TableVersion]:
        tables, parts, data = self._objects(owner, number, scn, only)
        if not tables:
            return []
        properties = {int(o): int(p or 0) for o, p in self._ask(SQL_TABLES, number, scn)}
        tables = {o: name for o, name in tables.items() if _is_ordinary(properties.get(o))}
        columns = self._columns(owner, number, scn, tables)
        keys, groups = self._constraints(number, scn)
        compressed = {name for (name,) in self._database.ask(SQL_COMPRESSED, owner=owner)}
        unlogged = {name for (name,) in self._database.ask(SQL_UNLOGGED, owner=owner)}
        return [
            self._version(
                owner, name, o, scn, columns[o], keys.get(o, []),
                partition_ids=tuple(parts.get(name, ())),
                data_object_ids=tuple(data.get(name, ())),
                supplemental=tuple(groups.get(o, ())),
                is_index_organized=bool(properties[o] & _INDEX_ORGANIZED),
                is_clustered=bool(properties[o] & _CLUSTERED),
                is_compressed=name in compressed,
                is_unlogged=name in unlogged,
            )
            for o, name in tables.items()
        ]  # fmt: skip

    def _objects(
        self, owner: str, number: int, scn: Scn, only: str
    ) -> tuple[dict[int, str], dict[str, list[int]], dict[str, list[int]]]:
        """Tables by object, and the objects and data objects of each table's partitions."""
        tables: dict[int, str] = {}
        parts: dict[str, list[int]] = {}
        data: dict[str, list[int]] = {}
        for name, o, data_object, kind in self._ask(SQL_OBJECTS, number, scn):
            if not self._config.wants(owner, name) or (only and name != only):
                continue
            if int(kind) == 2:
                tables[int(o)] = name
            else:
                parts.setdefault(name, []).append(int(o))
            if data_object is not None:
                data.setdefault(name, []).append(int(data_object))
        return tables, parts, data

    def _columns(self, owner: str, number: int, scn: Scn, tables: dict[int, str]) -> dict[int, list[_Column]]:
        defaults = {(int(t), int(c)): rest for t, c, *rest in self._ask(SQL_DEFAULTS, number, scn)}
        hidden_lobs = {(t, c): why for t, c, *why in self._database.ask(SQL_HIDDEN_LOBS, owner=owner)}
        found: dict[int, list[_Column]] = {o: [] for o in tables}
        for o, name, *rest in self._ask(SQL_COLUMNS, number, scn):
            o = int(o)
            if o not in found:
                continue
            column = _Column(name, *(None if value is None else int(value) for value in rest))
            found[o].append(
                column.described(
                    self.environment,
                    defaults.get((o, column.internal)),
                    unreadable=_why_lob(hidden_lobs.get((tables[o], name))),
                    where=f"{owner}.{tables[o]}",
                    source=self._source,
                )
            )
        return found

    def _constraints(self, number: int, scn: Scn) -> tuple[dict[int, list[_Key]], dict[int, list[str]]]:
        columns: dict[tuple[int, int, int], list[int]] = {}
        groups: dict[int, list[str]] = {}
        for o, constraint, kind, name, enabled, defer, column in self._ask(SQL_CONSTRAINTS, number, scn):
            kind, o = int(kind), int(o)
            if kind in (2, 3):
                # a deferrable constraint does not identify rows before the commit
                if enabled is not None and not int(defer or 0) & _DEFERRABLE and column is not None:
                    columns.setdefault((o, kind, int(constraint)), []).append(int(column))
                continue
            group = _LOG_GROUPS.get(kind, name)
            if group not in groups.setdefault(o, []):
                groups[o].append(group)
        keys: dict[int, list[_Key]] = {}
        for (o, kind, _), places in columns.items():
            keys.setdefault(o, []).append(_Key(kind == 2, tuple(places)))
        return keys, groups

    def _version(
        self, owner: str, name: str, o: int, scn: Scn, columns: list[_Column], keys: list[_Key], **more: Any
    ) -> TableVersion:
        version = TableVersion(
            source=self._source,
            owner=owner,
            table=name,
            object_id=o,
            columns=tuple(column.column for column in columns if column.column is not None),
            container=self._container,
            from_scn=scn,
            key=_key(columns, keys),
            **more,
        )
        return with_options(version, frozenset(self._config.as_text), frozenset())

    def _ask(self, sql: str, owner: int, scn: Scn) -> Iterable[tuple[Any, ...]]:
        for batch in self._database.batches(sql, 5_000, owner=owner, scn=scn):
            yield from batch


class _Column:
    """A row of COL$."""

    def __init__(
        self,
        name: str,
        internal: int | None,
        segment: int | None,
        kind: int | None,
        length: int | None,
        precision: int | None,
        scale: int | None,
        null: int | None,
        properties: int | None,
        form: int | None,
        _: int | None,
    ) -> None:
        self.name = name
        self.internal = internal or 0
        self.segment = segment or 0
        self.kind = kind or 0
        self.length = length or 0
        self.precision = precision
        self.scale = scale
        self.nullable = not null
        self.properties = properties or 0
        self.form = form or 0
        self.column: OracleColumn | None = None

    def described(
        self, environment: Environment, default: list[Any] | None, *, unreadable: str, where: str, source: str
    ) -> _Column:
        binary, length, guard = default if default is not None else (None, 0, None)
        if binary is not None and length > len(binary):
            raise StartRefusedError(
                f"{where}.{self.name}: its default has {length} bytes, more than can be queried",
                source=source,
                hint="take the column out of capture (columns.drop)",
            )
        is_virtual = bool(self.properties & _VIRTUAL)
        self.column = OracleColumn(
            name=self.name,
            number=0 if is_virtual else self.segment,
            type=self.kind,
            length=self.length,
            precision=self.precision,
            scale=self.scale,
            nullable=self.nullable,
            charset_form=self.form,
            charset=environment.national_charset if self.form == NATIONAL_FORM else environment.charset,
            zone=environment.zone,
            default=bytes(binary) if binary else None,
            guard=None if guard is None else int(guard),
            is_hidden=self._is_hidden(),
            is_guard=bool(self.properties & _GUARD),
            is_lob=bool(self.properties & _STORED_AS_LOB) and self.kind in (OracleType.VARCHAR2, OracleType.RAW),
            unreadable="an encrypted column" if self.properties & _ENCRYPTED else unreadable,
        )
        return self

    def _is_hidden(self) -> bool:
        """Whether the column is system-generated or set unused. A column that is only INVISIBLE is not hidden."""
        is_system = self.properties & _HIDDEN and self.properties & _GENERATED
        return bool(is_system or self.properties & (_UNUSED | _GUARD))


def _is_ordinary(properties: int | None) -> bool:
    """Whether the table is neither temporary nor the storage of another table."""
    return properties is not None and not properties & (_OVERFLOW | _NESTED | _TEMPORARY)


def _why_lob(found: list[Any] | None) -> str:
    if found is None:
        return ""
    encrypted, compressed, deduplicated = found
    if encrypted == "YES":
        return "an encrypted LOB"
    return "a deduplicated LOB" if deduplicated == "LOB" else "a compressed LOB" if compressed else ""


def _key(columns: list[_Column], keys: list[_Key]) -> tuple[str, ...]:
    """The primary key, or a unique key of columns that are never null, without hidden or virtual columns."""
    by_number = {column.internal: column for column in columns}
    for key in sorted(keys, key=lambda each: not each.is_primary):
        found = [by_number.get(number) for number in key.columns]
        if all(
            column is not None
            and column.column is not None
            and column.column.number
            and not column.column.is_hidden
            and (key.is_primary or not column.nullable)
            for column in found
        ):
            return tuple(column.name for column in found if column is not None)
    return ()
