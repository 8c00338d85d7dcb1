"""The publications of a source: created and altered to match its tables, or only checked (`manage_publication`).

A publication decides what the server sends. Removing a table from it or adding a row filter leaves no trace in the
stream, so such changes are detected by the oid and xmin of its catalogue rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import NamedTuple

import psycopg
from psycopg import sql

from lowwater.errors import LogGapError, SourceError, SourceLostError, StartRefusedError
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig

#: every table is locked until the end of the statement, and the lock table has room for some thousands of locks
TABLES_PER_STATEMENT = 500

#: the table was renamed or dropped; DuplicateObject: another published table has its name now
_RENAMED = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedObject, psycopg.errors.DuplicateObject)

_PUBLISHED = """
SELECT c.oid, n.nspname, c.relname FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = %s"""

#: columns that not every server version has are read through JSON
_PUBLICATIONS = """
SELECT p.pubname::text, p.oid, p.xmin::text, p.puballtables, p.pubviaroot, p.pubinsert, p.pubupdate, p.pubdelete,
       p.pubtruncate, coalesce(to_jsonb(p) ->> 'pubgencols', 'n') IN ('n', 'false')
FROM pg_publication p WHERE p.pubname = ANY(%s)"""
_FILTERED = """
SELECT n.nspname || '.' || c.relname,
       CASE WHEN to_jsonb(r) ->> 'prqual' IS NULL THEN 'a column list' ELSE 'a row filter' END
FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = ANY(%s) AND (to_jsonb(r) ->> 'prqual' IS NOT NULL OR to_jsonb(r) ->> 'prattrs' IS NOT NULL)
  AND (%s::oid[] IS NULL OR c.oid = ANY(%s::oid[]))"""
#: from version 15 on
_SCHEMAS = """
SELECT n.nspname::text FROM pg_publication p JOIN pg_publication_namespace s ON s.pnpubid = p.oid
JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = ANY(%s)"""


class Publication(NamedTuple):
    name: str
    oid: int
    #: xmin: changes with every change of the settings
    version: str
    has_all_tables: bool
    via_root: bool
    inserts: bool
    updates: bool
    deletes: bool
    truncates: bool
    without_generated: bool


class Publications:
    def __init__(self, config: PostgresConfig, source: str, catalogue: DatabaseCatalogue) -> None:
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self.main = config.publication_of(source)
        self.inserts = f"{self.main}_inserts"
        #: oids by name of the publications that the log is read with: a recreated publication has another oid
        self.known: dict[str, int] = {}

    @property
    def names(self) -> list[str]:
        return [self.main, self.inserts] if self._config.manage_publication else [self.main]

    # -- at the start --------------------------------------------------------------------------------------

    def ensure(self, tables: Sequence[CatalogueTable], known: Mapping[str, int] | None = None) -> None:
        """Create and check the publications. Both are created at the start of capture, because the server cannot decode
        log that is older than a publication that START_REPLICATION names.

        `known`: oids by name of the publications that the log was read with; None at the start of capture.
        """
        if known is not None:
            self.known = dict(known)
            self.check_there()
        if not self._config.manage_publication:
            self._check_members(tables)
        else:
            self._make()
            self.keep_to(tables)
        self.check_settings(tables)
        self.known = {found.name: found.oid for found in self.there()}

    def _make(self) -> None:
        there = {found.name for found in self.there()}
        for name, publish in self._wanted().items():
            if name not in there:
                make = sql.SQL("CREATE PUBLICATION {} WITH (publish = {}, publish_via_partition_root = true)")
                self._catalogue.ask(make.format(sql.Identifier(name), sql.Literal(publish)))

    def _wanted(self) -> dict[str, str]:
        return {self.main: "insert, update, delete, truncate", self.inserts: "insert, truncate"}

    def keep_to(self, tables: Sequence[CatalogueTable], stay: Set[int] = frozenset()) -> bool:
        """Add and drop tables so that the publications match `tables`. Return whether anything was changed.

        Child tables of inheritance are added individually (ONLY). `stay`: oids of tables that are not dropped.
        """
        is_changed = False
        for name, has_identity in ((self.main, True), (self.inserts, False)):
            wanted = {t.oid: (t.schema.namespace, t.schema.table) for t in tables if t.has_identity is has_identity}
            there = {oid: (namespace, table) for oid, namespace, table in self._catalogue.ask(_PUBLISHED, name)}
            new = sorted(wanted[oid] for oid in wanted.keys() - there.keys())
            gone = sorted(there[oid] for oid in there.keys() - wanted.keys() - stay)
            for command, some in (("ADD", new), ("DROP", gone)):
                for start in range(0, len(some), TABLES_PER_STATEMENT):
                    named = sql.SQL(", ").join(
                        sql.SQL("ONLY {}").format(sql.Identifier(*table))
                        for table in some[start : start + TABLES_PER_STATEMENT]
                    )
                    alter = sql.SQL("ALTER PUBLICATION {} {} TABLE {}")
                    self._alter(alter.format(sql.Identifier(name), sql.SQL(command), named))
                    is_changed = True
        return is_changed

    def _alter(self, statement: sql.Composed) -> None:
        try:
            self._catalogue.ask(statement)
        except SourceError as error:
            if not isinstance(error.__cause__, _RENAMED):
                raise
            raise SourceLostError(
                f"tables were renamed or dropped while a publication was altered: {error.what}",
                source=self._source,
                hint="it is tried again",
            ) from error.__cause__

    @contextmanager
    def without_waiting(self) -> Iterator[None]:
        """Use a short lock timeout, so that a locked table does not block the stream. The caller tries again later."""
        self._catalogue.ask("SET lock_timeout = '100ms'")
        try:
            yield
        finally:
            self._catalogue.ask("SET lock_timeout = '5s'")

    # -- checks --------------------------------------------------------------------------------------------

    def there(self) -> list[Publication]:
        return [Publication(*row) for row in self._catalogue.ask(_PUBLICATIONS, self.names)]

    def check_there(self) -> None:
        """Raise LogGapError if a publication is missing or was recreated. PostgreSQL 18 ignores missing ones."""
        oids = {found.name: found.oid for found in self.there()}
        missing = [name for name in self.names if name not in oids]
        if missing:
            raise self._unpublished(f"publication {', '.join(missing)} was dropped")
        others = [name for name, oid in self.known.items() if oids.get(name, oid) != oid]
        if others:
            raise self._unpublished(f"publication {', '.join(others)} was dropped and recreated")

    def _unpublished(self, what: str) -> LogGapError:
        return LogGapError(
            f"{what}: changes since then may not have been captured",
            source=self._source,
            hint="reset the source's position: publication and slot are recreated and its tables copied again",
        )

    def check_settings(self, tables: Sequence[CatalogueTable]) -> list[Publication]:
        """Raise unless the publications send every row, column and change of the tables. Return the publications."""
        oids = None if self._config.manage_publication else [table.oid for table in tables]
        has_parts = self._config.manage_publication or any(table.kind == "p" for table in tables)
        found = self.there()
        for publication in found:
            self._check_flags(publication, has_parts)
        filtered = self._catalogue.ask(_FILTERED, self.names, oids, oids)
        if filtered:
            table, what = filtered[0]
            raise LogGapError(
                f"publication {', '.join(self.names)} has {what} for {table}: rows or columns are not captured",
                source=self._source,
                hint=f"ALTER PUBLICATION … DROP TABLE {table}, and ADD TABLE without it; then resume the source: the "
                "table is copied again. To hide columns, use the source's `columns` rules",
            )
        return found

    def _check_flags(self, found: Publication, has_parts: bool) -> None:
        wanted = {"insert": found.inserts, "truncate": found.truncates}
        if found.name == self.main:
            wanted |= {"update": found.updates, "delete": found.deletes}
        missing = [operation for operation, is_there in wanted.items() if not is_there]
        if missing:
            what, fix = f"does not publish {', '.join(missing)}", f"publish = '{', '.join(wanted)}'"
        elif has_parts and not found.via_root:
            what, fix = "publishes partitions under their own names", "publish_via_partition_root = true"
        elif not found.without_generated:
            what, fix = "publishes generated columns, which are not captured", "publish_generated_columns = none"
        else:
            return
        raise LogGapError(
            f"publication {found.name} {what}",
            source=self._source,
            hint=f"ALTER PUBLICATION {found.name} SET ({fix}); then resume the source, and its tables are copied again",
        )

    def schemas(self) -> set[str]:
        """Return the schemas that are published with all their tables."""
        if self._config.manage_publication or self._catalogue.connection.info.server_version < 150_000:
            return set()
        return {name for (name,) in self._catalogue.ask(_SCHEMAS, self.names)}

    def _check_members(self, tables: Sequence[CatalogueTable]) -> None:
        rows = self._catalogue.ask(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s", self.main
        )
        missing = sorted({table.name for table in tables} - {name for (name,) in rows})
        if missing:
            raise StartRefusedError(
                f"publication {self.main} does not have {', '.join(missing)}",
                source=self._source,
                hint=f"ALTER PUBLICATION {self.main} ADD TABLE …, with publish_via_partition_root = true; "
                "or set manage_publication: true",
            )


def is_passing(error: SourceLostError) -> bool:
    """Whether a table was locked longer than the lock timeout, or was renamed or dropped: worth another try."""
    return isinstance(error.__cause__, (psycopg.errors.LockNotAvailable, *_RENAMED))
