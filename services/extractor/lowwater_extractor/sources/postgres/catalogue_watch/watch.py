"""Watches the catalogue for changes that are not in the log: tables replaced under the same name, attached or detached
partitions, rewritten rows, altered publications.

A digest of the relevant catalogue rows is queried over a separate connection while the stream continues: after
transactions were received, which are held back until the answer arrives, and about every second otherwise. If the query
is slow it runs less often, so that it uses only a small share of one core. When the digest changes, the facts are read
and compared with the stored ones (`table_facts.py`). In addition, the relation messages of the stream trigger a check
before their transaction is returned, because the server sends them again after any DDL on the relation. Therefore no
transaction that committed after such a change is returned before the table is reported as stale.

A stale table has an LSN: a message is written to the log when the change is found, and copies whose snapshot is after
this message are valid.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import structlog

from lowwater.errors import LogGapError, SourceError, SourceLostError
from lowwater.records.positions import Order
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.postgres.assembler import Named, NamedRelation
from lowwater_extractor.sources.postgres.catalogue import CatalogueTable, DatabaseCatalogue, Seen
from lowwater_extractor.sources.postgres.catalogue_watch.digest import DigestAsker
from lowwater_extractor.sources.postgres.catalogue_watch.facts_query import Facts, prints_query, read_facts
from lowwater_extractor.sources.postgres.catalogue_watch.table_facts import (
    KnownTable,
    TableFacts,
    known_of,
    what_changed,
)
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import named_errors
from lowwater_extractor.sources.postgres.publications import is_passing
from lowwater_extractor.sources.postgres.relations import wait_until_visible
from lowwater_extractor.sources.postgres.setup import Setup
from lowwater_extractor.sources.postgres.wire.lsn import parse_lsn

#: how many dropped tables remain listed as stale; older ones are removed from the list
GONE_MAX = 1_000
#: grace period: a primary key may be dropped and created again by two statements
WITHOUT_KEY_SECONDS = 5.0

_TABLE, _PUBLICATIONS = "table/", "publications"
#: transactional, so that it is flushed at commit and the stream reaches it
_PLACE = "SELECT pg_logical_emit_message(true, 'lowwater', 'stale')::text"

_COLUMNS = "SELECT attname::text FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"

_log = structlog.get_logger()


def _named(prefix: str, notes: Mapping[str, bytes]) -> list[tuple[str, bytes]]:
    return [(name.removeprefix(prefix), data) for name, data in notes.items() if name.startswith(prefix)]


class _CatalogueSnapshot(NamedTuple):
    """One consistent reading of the catalogue."""

    seen: Seen
    #: hash of every configured table, by oid
    prints: dict[int, str]
    #: tables to compare: those whose hash changed, or all
    oids: set[int]
    #: without tables that cannot be captured
    tables: list[CatalogueTable]
    facts: Facts


class Watch:
    """The watch of one session. Changes made before the session are found by the constructor."""

    def __init__(
        self,
        config: PostgresConfig,
        source: str,
        catalogue: DatabaseCatalogue,
        setup: Setup,
        notes: Mapping[str, bytes],
    ) -> None:
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._setup = setup
        self._known = {name: KnownTable.unpack(data) for name, data in _named(_TABLE, notes)}
        self.stale = StaleTables(source, notes)
        self._publications: dict[str, str] = json.loads(notes.get(_PUBLICATIONS) or b"{}")
        #: without stored facts there is nothing to compare with
        self._is_first = not self._known
        self._changed: dict[str, bytes] = {}
        self._seen: Seen | None = None
        self._prints: dict[int, str] = {}
        #: oid → since when, for tables that have lost their replica identity
        self._keyless: dict[int, float] = {}
        self._left_out: set[str] = set()
        #: tables that the next check reads again even if their hash is unchanged
        self._again: set[int] = set()
        self._asker = DigestAsker(config, source, setup.publications.names)
        # the messages written here must not wait for a standby
        catalogue.ask("SET synchronous_commit = local")
        try:
            # the digest is older than the facts: a change in between causes another check
            self._digest, seen = self._asker.now()
            self.check(is_full=True)
            #: snapshot of the last digest: catalogue changes of the transactions visible in it were checked
            self.covers: Seen = seen
        except BaseException:
            self._asker.close()
            raise

    def notes(self) -> dict[str, bytes]:
        """Return the stored facts that changed since the last call; an empty value deletes an entry."""
        changed, self._changed = self._changed, {}
        return changed | self.stale.notes()

    # -- polling -------------------------------------------------------------------------------------------

    def poll(self, *, is_waited_for: bool) -> None:
        """Check the digest. Blocks only if it differs. `is_waited_for`: transactions are held back until the answer."""
        found = self._asker.poll(is_waited_for=is_waited_for)
        if found is None:
            return
        before, self._digest = self._digest, found.digest
        if found.digest != before or self._again:
            self.check(is_full=found.digest.shared != before.shared)
        self.covers = found.seen

    def named(self, named: Named) -> None:
        """Check the relations of relation messages, before their transactions are returned."""
        new = [xid for xid in named.xids if self._seen is None or not self._seen.shows(xid)]
        for xid in new:
            wait_until_visible(self._catalogue, xid, self._source)
        if new:
            self._check_named({relation.oid for relation in named.places})
        self._check_names(named)

    def _check_names(self, named: Named) -> None:
        """Find temporary states that the current catalogue no longer shows: a name that referred to another table, a
        column that was dropped since, of which it is unknown whether old rows had values. Mark these tables stale."""
        now = {known.oid: name for name, known in self._known.items()}
        reasons: dict[str, str] = {}
        for relation, place in named.places.items():
            names: set[str] = set()
            if now.get(relation.oid) != relation.name:
                names = {relation.name, now.get(relation.oid, relation.name)} & self._known.keys()
                reason = "its name temporarily referred to another table, or it had another name"
            elif gone := self._columns_gone(relation):
                names, reason = {relation.name}, f"it temporarily had columns that were dropped: {', '.join(gone)}"
            for name in sorted(names):
                if self.stale.order_of(name) < Order.mark(place):
                    reasons.setdefault(name, reason)
        if reasons:
            self._name_stale(reasons)

    def _columns_gone(self, relation: NamedRelation) -> list[str]:
        if self._known[relation.name].has_columns(relation.columns):
            return []
        rows = self._catalogue.ask(_COLUMNS, relation.oid)
        there = {name for (name,) in rows}
        return [name for name in relation.columns if name not in there]

    def _check_named(self, wanted: set[int]) -> None:
        with self._snapshot():
            tables = self._capturable(self._setup.wanted(sorted(wanted)), {})
            facts = read_facts(self._catalogue, tables, self._setup.publications.names)
        there = {table.oid for table in tables}
        is_gone = any(known.oid in wanted and known.oid not in there for known in self._known.values())
        is_same = all(table.name in self._known and not self._differs(table) for table in facts.tables)
        if is_gone or not is_same or facts.unlogged:
            self.check()

    def _differs(self, facts: TableFacts) -> bool:
        known = self._known[facts.name]
        return known_of(facts, known) != known

    # -- checks --------------------------------------------------------------------------------------------

    def check(self, *, is_full: bool = False) -> None:
        """Compare tables with their stored facts, and alter the publication to match.

        Only tables whose hash changed since the last check are compared, or all with `is_full`.
        """
        self._setup.publications.check_there()
        snapshot = self._read_snapshot(is_full)
        if self._config.manage_publication and self._follow(snapshot):
            snapshot = self._read_snapshot(is_full)
        versions = {found.name: found.version for found in self._setup.publications.check_settings(snapshot.tables)}
        if versions != self._publications and not is_full:
            self.check(is_full=True)
            return
        self._refuse_unlogged(snapshot.facts)
        found = {table.name: table for table in self._published(snapshot)}
        rest = snapshot.prints.keys() - snapshot.oids
        gone = {name for name, known in self._known.items() if known.oid not in rest} - found.keys()
        reasons = self._differences(found, gone, versions)
        if reasons:
            self._name_stale(reasons)
        self._keep(found, gone, versions)
        self._seen, self._prints = snapshot.seen, snapshot.prints
        self._asker.composites.update(snapshot.facts.composites)
        self._is_first = False

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Run the queries inside in one REPEATABLE READ transaction."""
        connection = self._catalogue.connection
        with named_errors(self._source, "watch the catalogue"), connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            yield

    def _read_snapshot(self, is_full: bool) -> _CatalogueSnapshot:
        publications = self._setup.publications.names
        with self._snapshot():
            seen = self._catalogue.snapshot()
            prints = dict(self._catalogue.ask(prints_query(self._config.tables, publications)))
            oids = {oid for oid, print_ in prints.items() if is_full or self._prints.get(oid) != print_}
            oids |= self._again & prints.keys()
            keyless: dict[int, float] = {}
            tables = self._capturable(self._setup.wanted(None if is_full else sorted(oids)), keyless)
            facts = read_facts(self._catalogue, tables, publications)
        self._keyless, self._again = keyless, set(keyless)
        return _CatalogueSnapshot(seen, prints, oids, tables, facts)

    def _capturable(self, tables: list[CatalogueTable], keyless: dict[int, float]) -> list[CatalogueTable]:
        """Return the tables that can be captured. A new table without replica identity is left out until it has one.

        A captured table that loses its identity stops the source after WITHOUT_KEY_SECONDS; until then it is added to
        `keyless`. Meanwhile the server itself refuses updates and deletes.
        """
        kept, now = [], time.monotonic()
        for table in tables:
            known = self._known.get(table.name)
            if self._setup.can_be_captured(table):
                kept.append(table)
            elif known is not None and known.oid == table.oid:
                since = keyless[table.oid] = self._keyless.get(table.oid, now)
                if table.identity == "n" or now - since >= WITHOUT_KEY_SECONDS:
                    raise self._setup.without_identity([table.name])
                kept.append(table)
            elif table.name not in self._left_out:
                self._left_out.add(table.name)
                _log.warning("a new table without a key is not captured", source=self._source, table=table.name)
        return kept

    def _follow(self, snapshot: _CatalogueSnapshot) -> bool:
        # a table that has lost its identity stays published: otherwise its inserts would be lost as well
        tables = [table for table in snapshot.tables if table.oid not in self._keyless]
        stay = (snapshot.prints.keys() - snapshot.oids) | self._keyless.keys()
        try:
            with self._setup.publications.without_waiting():
                return self._setup.publications.keep_to(tables, stay)
        except SourceLostError as error:
            if not is_passing(error):
                raise
            _log.info("the publication could not be altered yet", source=self._source, why=error.what)
            self._again |= {table.oid for table in tables}
            return False
        except SourceError as error:
            error.hint = "make the user of this source the owner of the table, or a member of the role that owns it"
            raise

    def _published(self, snapshot: _CatalogueSnapshot) -> list[TableFacts]:
        """Return the tables that are published. Raises LogGapError if a captured table no longer is."""
        publications = self._setup.publications
        if any(found.has_all_tables for found in publications.there()):
            return snapshot.facts.tables
        schemas = publications.schemas()
        namespaces = {table.oid: table.schema.namespace for table in snapshot.tables}
        missing = [t.name for t in snapshot.facts.tables if not t.published and namespaces[t.oid] not in schemas]
        lost = [name for name in missing if name in self._known]
        if lost and not self._config.manage_publication:
            raise LogGapError(
                f"publication {publications.main} does not have {', '.join(lost)}: its changes are not captured",
                source=self._source,
                hint=f"ALTER PUBLICATION {publications.main} ADD TABLE …; then resume the source: it is copied again",
            )
        if self._config.manage_publication:
            # created between the two snapshots of this check: the next check adds it to the publication
            self._again |= {table.oid for table in snapshot.facts.tables if table.name in missing}
        return [table for table in snapshot.facts.tables if table.name not in missing]

    def _refuse_unlogged(self, facts: Facts) -> None:
        if facts.unlogged:
            part, table = facts.unlogged[0]
            raise SourceError(
                f"{part}, a partition of {table}, is unlogged or foreign: its changes are not in the log",
                source=self._source,
                hint=f"ALTER TABLE {part} SET LOGGED, or detach it; then resume the source: {table} is copied again",
            )

    def _differences(
        self, found: Mapping[str, TableFacts], gone: Iterable[str], versions: Mapping[str, str]
    ) -> dict[str, str]:
        if self._is_first:
            return {}
        altered = any(versions.get(name, version) != version for name, version in self._publications.items())
        reasons = dict.fromkeys(gone, "it was dropped or renamed, or can no longer be captured")
        for name, facts in found.items():
            known = self._known.get(name)
            reason = "it is new" if known is None else what_changed(known, facts)
            if not reason and altered:
                reason = "its publication was altered"
            if reason:
                reasons[name] = reason
        return reasons

    def _name_stale(self, reasons: Mapping[str, str]) -> None:
        ((place,),) = self._catalogue.ask(_PLACE)
        order = Order.mark(parse_lsn(place))
        for name, reason in reasons.items():
            self.stale.add(name, order, reason)

    def _keep(self, found: Mapping[str, TableFacts], gone: Iterable[str], versions: dict[str, str]) -> None:
        for name in gone:
            del self._known[name]
            self._changed[_TABLE + name] = b""
        for name, facts in found.items():
            known = known_of(facts, self._known.get(name))
            if self._known.get(name) != known:
                self._known[name] = known
                self._changed[_TABLE + name] = known.pack()
        if versions != self._publications:
            self._publications = versions
            self._changed[_PUBLICATIONS] = json.dumps(versions).encode()
        absent = sorted((stale.order, name) for name, stale in self.stale.found.items() if name not in self._known)
        for _, name in absent[: max(0, len(absent) - GONE_MAX)]:
            self.stale.forget(name)

    def close(self) -> None:
        self._asker.close()
