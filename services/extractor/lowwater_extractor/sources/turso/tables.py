"""The definitions of the tables at the current position in the log. No I/O: the log's schema rows update them.

Rows of `sqlite_schema` in the log record schema changes, but not all: Turso writes none for a rename, and a connection
that does not capture writes none at all. So periodically, at the end of the log, the tables are compared with the
database's schema: by their CREATE statements ("texts"), and by their locations in the file ("places"), which
distinguish two tables that have swapped their names. A table that differs is stale: the changes of its rows are not in
the log.

The text of each table by position is stored in a note, because the database only has the current one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import structlog

from lowwater.codec.table import TableSchema
from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater.records.positions import Order
from lowwater_extractor.api import SeenVersions
from lowwater_extractor.snapshot.stale_notes import StaleTables
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.relations import COMMIT_MINOR, Captured, CapturedMaker, problem
from lowwater_extractor.sources.turso.schema.definitions import NAMESPACE, Definitions, is_internal

SCHEMA = "sqlite_schema"
_NOTE = "table/"
_PLACE = "place/"
_DROPPED = "dropped/"

_log = structlog.get_logger()

#: distance of the orders of two findings at the same end of the log, for copies that become readable in between
FOUND_STEP = 1 << 16

#: location of a table in the file: the rowid of its row in `sqlite_schema`, and its root page
Place = tuple[int, int]


#: (change id from which on a text is valid, the text; None: the table does not exist)
History = list[tuple[int, str | None]]


def _counting(history: History, at: int) -> History:
    """Return the part of a history that a reader after `at` needs: the text valid at `at`, and all later ones."""
    first = max((n for n, (since, _) in enumerate(history) if since <= at), default=0)
    return history[first:]


class Tables:
    def __init__(self, config: TursoConfig, source: str, definitions: Definitions, maker: CapturedMaker) -> None:
        self._config = config
        self._source = source
        self._definitions = definitions
        self._maker = maker
        #: name → current text, of every table but the engine's
        self._texts: dict[str, str] = {}
        #: as in the notes: a note may be durable before the position after it
        self._histories: dict[str, History] = {}
        #: by name; None: not captured
        self.captured: dict[str, Captured | None] = {}
        #: the last version of each table
        self.seen: dict[str, TableSchema] = SeenVersions()
        #: notes to store with the next position
        self.notes: dict[str, bytes] = {}
        #: a schema row in the log did not identify its table: the database must be checked
        self.is_unsure = False
        self._places: dict[str, Place] = {}
        self._remade: dict[str, int | None] = {}
        #: columns that were dropped: a new column of the same name does not have the old values
        self._dropped: dict[str, set[str]] = {}
        #: the order of all findings of one poll
        self._found_in_poll: Order | None = None
        #: tables whose rows were added, deleted or rewritten without changes in the log, at or before the order
        self.stale = StaleTables(source, {})

    def begin(self, texts: Mapping[str, str], at: int, places: Mapping[str, Place] | None = None) -> None:
        """Set the tables of the database at the start of capture."""
        for name, sql in texts.items():
            self._set(name, sql, at)
        self._learn(places or {})

    def _learn(self, places: Mapping[str, Place]) -> None:
        for name, place in places.items():
            if self._places.get(name) != place:
                self._places[name] = place
                self.notes[_PLACE + name] = json.dumps(place).encode()

    def mark_stale(self, name: str, change_id: int, reason: str, *, at_end: bool = False) -> None:
        """Mark a table as stale: a copy that was planned before this change is invalid.

        `at_end`: so is a copy that was planned after it, up to now.
        """
        full_name = f"{NAMESPACE}.{name}"
        order = self.found_order(change_id) if at_end else Order(change_id, COMMIT_MINOR)
        if is_internal(name) or name == self._config.cdc_table or not self._config.wants(full_name):
            return
        if not self._config.copy_tables:
            # there is no copy to invalidate, and none is configured
            _log.warning("rows changed without changes in the log", source=self._source, table=full_name, why=reason)
            return
        self.stale.add(full_name, order, reason)
        self.notes |= self.stale.notes()

    def found_order(self, end: int) -> Order:
        """Return the order of a finding at the end of the log: after all copies planned there, below the next commit.

        It is also the mark, until the log advances.
        """
        last = max((s.order for s in self.stale.found.values() if s.order.major == end + 1), default=None)
        before = 0 if last is None else last.minor
        if self._found_in_poll is not None and self._found_in_poll.major == end + 1:
            return self._found_in_poll
        self._found_in_poll = Order(end + 1, (before // FOUND_STEP + 1) * FOUND_STEP)
        return self._found_in_poll

    def mark_all_stale(self, change_id: int, reason: str) -> None:
        for name in self.captured_names():
            self.mark_stale(name, change_id, reason, at_end=True)

    def mark_at(self, end: int) -> Order:
        """Return the mark of a log that was read up to `end`."""
        found = [stale.order for stale in self.stale.found.values()]
        here = [order for order in found if order.major == end + 1 and order.minor < COMMIT_MINOR]
        return max(here, default=Order.mark(end))

    def captured_names(self) -> list[str]:
        """Return the names of the captured tables in the database, without namespace."""
        return [n for n in self._texts if n != self._config.cdc_table and self._config.wants(f"{NAMESPACE}.{n}")]

    def known(self) -> tuple[Mapping[str, str], Mapping[str, Place]]:
        """Return texts and places of all tables but the engine's, at the position up to which the log was read."""
        return self._texts, self._places

    def text(self, name: str) -> str | None:
        return self._texts.get(name)

    def page(self, name: str) -> int | None:
        """Return the root page of a table, if it is known."""
        place = self._places.get(name)
        return None if place is None else place[1]

    def since(self, name: str) -> int:
        """Return the change id from which on the table's text is valid."""
        history = self._histories.get(name)
        return history[-1][0] if history else 0

    def take_remade(self) -> dict[str, int | None]:
        """Return the tables created since the last call → change id; None: dropped, or created without the log."""
        found, self._remade = self._remade, {}
        return found

    def name_of(self, name: str) -> str:
        """Return the table's own name: the log has names as written in the statement, in upper or lower case."""
        if name in self._texts:
            return name
        folded = name.lower()
        return folded if folded in self._texts else next((n for n in self._texts if n.lower() == folded), name)

    def restore(self, notes: Mapping[str, bytes], at: int) -> None:
        self.stale = StaleTables(self._source, notes)
        for note, value in notes.items():
            if not value:
                continue
            if note.startswith(_PLACE):
                rowid, page = json.loads(value)
                self._places[note.removeprefix(_PLACE)] = (rowid, page)
            elif note.startswith(_DROPPED):
                self._dropped[note.removeprefix(_DROPPED)] = set(json.loads(value))
            elif note.startswith(_NOTE):
                name = note.removeprefix(_NOTE)
                # changes after the position are read again
                history = [(since, sql) for since, sql in json.loads(value) if since <= at][-1:]
                self._histories[name] = history
                if history and history[0][1] is not None:
                    self._texts[name] = history[0][1]

    def passed(self, at: int) -> None:
        """Everything up to `at` is durable, with the position."""
        for name, history in self._histories.items():
            if len(history) > 1:
                self._histories[name] = _counting(history, at)

    # -- lookup ------------------------------------------------------------------------------------------

    def find(self, name: str) -> Captured | None:
        """Return the table of a change, None if it is not captured. KeyError: the table is unknown."""
        known = self.name_of(name)
        if is_internal(known) or known == self._config.cdc_table or not self._config.wants(f"{NAMESPACE}.{known}"):
            found = None
        elif known == name:
            found = self._make(name, self._texts[name])
        else:
            found = self.captured.get(known) or self.find(known)
        self.captured[name] = found
        return found

    def _make(self, name: str, sql: str) -> Captured:
        definition = self._definitions.definition(name, sql)
        if (wrong := problem(definition, self._config)) is not None:
            raise StartRefusedError(wrong[0], source=self._source, thread=1, hint=wrong[1])
        made = self._maker.make(definition)
        self.seen[definition.full_name] = made.table
        return made

    # -- schema changes ----------------------------------------------------------------------------------

    def define(self, name: str, sql: str, change_id: int, place: Place | None = None) -> None:
        if place is not None and not is_internal(name):
            self._learn({name: place})
        if is_internal(name) or self._texts.get(name) == sql:
            return
        before = self._texts.get(name)
        self._set(name, sql, change_id, is_logged=place is not None)
        if before is not None:
            self._altered(name, before, sql, change_id)
        if self._config.wants(f"main.{name}") and name != self._config.cdc_table:
            # a new version begins here, even if no row of it follows for long: the table may have to be copied
            self.find(name)

    def _altered(self, name: str, before: str, sql: str, change_id: int) -> None:
        """Mark the table as stale if existing rows would have wrong values: if a column was added with a default,
        renamed, or dropped and added again."""
        if not self._config.wants(f"{NAMESPACE}.{name}"):
            return
        was, now = ({c.name: c for c in self._definitions.definition(name, text).cells} for text in (before, sql))
        added, lost = now.keys() - was.keys(), was.keys() - now.keys()
        gone = self._dropped.get(name, set())
        if added and lost:
            self.mark_stale(name, change_id, f"columns were renamed: {', '.join(sorted(lost))}")
        elif again := sorted(gone & added):
            self.mark_stale(name, change_id, f"columns were dropped and added again: {', '.join(again)}")
        elif filled := sorted(column for column in added if now[column].is_filled):
            self.mark_stale(name, change_id, f"columns were added with values for old rows: {', '.join(filled)}")
        if lost - gone:
            self._dropped[name] = gone | lost
            self.notes[_DROPPED + name] = json.dumps(sorted(self._dropped[name])).encode()

    def _set(self, name: str, sql: str | None, change_id: int, *, is_logged: bool = False) -> None:
        if sql is None or name not in self._texts:
            self._remade[name] = change_id if is_logged and sql is not None else None
        history = self._histories.setdefault(name, [])
        history.append((change_id, sql))
        self.notes[_NOTE + name] = json.dumps(history).encode()
        for known in [known for known in self.captured if known.lower() == name.lower()]:
            del self.captured[known]
        if sql is None:
            self._texts.pop(name, None)
            if self._dropped.pop(name, None) is not None:
                self.notes[_DROPPED + name] = b""
            if self._places.pop(name, None) is not None:
                self.notes[_PLACE + name] = b""
        else:
            self._texts[name] = sql

    def drop(self, name: str, change_id: int) -> Captured | None:
        """Remove the table; returns its last version, for the truncate change, or None."""
        if name not in self._texts:
            return None
        last = self.captured.get(name) or self.find(name)
        self._set(name, None, change_id)
        return last

    def named_by(self, rowid: int) -> str | None:
        """Return the table whose row in `sqlite_schema` has this rowid, if it is known."""
        return next((name for name, place in self._places.items() if place[0] == rowid), None)

    def adopt(
        self, texts: Mapping[str, str], change_id: int, places: Mapping[str, Place] | None = None
    ) -> None:  # fmt: skip
        """Adopt the database's schema at the end of the log; tables that differ are stale."""
        places = places or {}
        for name, sql in texts.items():
            known = self._places.get(name)
            if self._texts.get(name) != sql:
                why = "it was created, altered or renamed without a change in the log"
                self.mark_stale(name, change_id, why, at_end=True)
                self.define(name, sql, change_id)
            elif known is not None and places.get(name, known) != known:
                why = "another table has its name now, without a change in the log"
                self.mark_stale(name, change_id, why, at_end=True)
        for name in [name for name in self._texts if name not in texts]:
            self.mark_stale(name, change_id, "it was dropped or renamed without a change in the log", at_end=True)
            self._set(name, None, change_id)
        self._learn({name: place for name, place in places.items() if not is_internal(name)})
        self.is_unsure = False

    def adopt_unknown(self, name: str, texts: Mapping[str, str], change_id: int) -> Captured | None:
        """Adopt a table that is not in the log, for a change of it. KeyError: it is not in the database either."""
        known = name if name in texts else next((n for n in texts if n.lower() == name.lower()), name)
        text = texts[known]
        self.mark_stale(known, change_id, "it was created or renamed without a change in the log")
        self.define(known, text, change_id)
        return self.captured.get(name) or self.find(name)

    def adopt_wider(
        self, name: str, texts: Mapping[str, str], places: Mapping[str, Place], change_id: int, width: int
    ) -> Captured | None:  # fmt: skip
        """Adopt the database's columns of a table, for a row that does not fit the known ones.

        Columns were added without a change in the log, or another table has the name now. Returns None if the
        database's columns do not fit the row either.
        """
        known = self.name_of(name)
        sql = texts.get(known)
        if sql is None or known not in self._texts:
            return None
        now, before = (self._definitions.definition(known, text).cells for text in (sql, self._texts[known]))
        place = self._places.get(known)
        is_another = place is not None and places.get(known, place) != place
        is_wider = len(now) > len(before) and now[: len(before)] == before
        if len(now) != width or not (is_wider or is_another):
            return None
        self.mark_stale(known, change_id, "it was altered without a change in the log")
        self.define(known, sql, change_id)
        return self.captured.get(name) or self.find(name)

    def take_notes(self) -> dict[str, bytes]:
        notes, self.notes = self.notes, {}
        self._found_in_poll = None
        return notes


def missing_table(name: str, source: str, change_id: int) -> LogUnknownError:
    return LogUnknownError(
        f"a change of main.{name}, which is neither in the log nor in the database",
        source=source,
        thread=1,
        position=str(change_id),
        hint="it was created by a connection that does not capture, and dropped since: remove it from `tables`",
    )


def check_tables(texts: Mapping[str, str], definitions: Definitions, config: TursoConfig) -> Iterable[tuple[str, str]]:
    """Yield the problems of the configured tables, each with its fix."""
    names = {f"main.{name}": name for name in texts if name != config.cdc_table}
    for wanted in config.tables:
        if not wanted.endswith(".*") and wanted not in names:
            yield f"no such table: {wanted}", "tables are written as `main.table`, with the name in sqlite_schema"
    for full_name, name in names.items():
        if config.wants(full_name):
            wrong = problem(definitions.definition(name, texts[name]), config)
            if wrong is not None:
                yield wrong
