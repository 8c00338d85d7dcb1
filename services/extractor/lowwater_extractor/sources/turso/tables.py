"""The tables as they are at the place in the log that is read. Does no I/O: the log's own words move them on.

Rows of `sqlite_schema` in the log say what becomes of tables, but not all of it: Turso writes none for a rename, and
a connection that does not capture writes none at all. So now and then, at the log's end, the tables are held against
what the database says of itself.

What a table was at a place is remembered beside the position (a note for each table), because the database only tells
what it is now.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import structlog

from lowwater.codec.table import TableSchema
from lowwater.errors import LogUnknownError, StartRefusedError
from lowwater_extractor.sources.turso.captured import Captured, CapturedMaker, problem
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.definitions import Definitions, is_internal

_NOTE = "table/"

_log = structlog.get_logger()


#: (place from which a text counts, the text or that there is no such table)
History = list[tuple[int, str | None]]


def _counting(history: History, at: int) -> History:
    """What is still needed by one who reads on behind `at`: the text that counts there, and all later ones."""
    first = max((n for n, (since, _) in enumerate(history) if since <= at), default=0)
    return history[first:]


class Tables:
    def __init__(self, config: TursoConfig, source: str, definitions: Definitions, maker: CapturedMaker) -> None:
        self._config = config
        self._source = source
        self._definitions = definitions
        self._maker = maker
        #: name → the text that counts now, of every table that is not the engine's
        self._texts: dict[str, str] = {}
        #: as notes have them: a note may be durable before the position that is behind it
        self._histories: dict[str, History] = {}
        #: by name; None: not captured
        self.captured: dict[str, Captured | None] = {}
        #: each table's last version
        self.seen: dict[str, TableSchema] = {}
        #: to be remembered with the next position
        self.notes: dict[str, bytes] = {}
        #: a row of the schema did not say what it was about
        self.is_unsure = False

    def begin(self, texts: Mapping[str, str], at: int) -> None:
        """As the database has them where capture begins."""
        for name, sql in texts.items():
            self._set(name, sql, at)

    def restore(self, notes: Mapping[str, bytes], at: int) -> None:
        for note, value in notes.items():
            if note.startswith(_NOTE):
                name = note.removeprefix(_NOTE)
                # what lies behind the position is read again
                history = [(since, sql) for since, sql in json.loads(value) if since <= at][-1:]
                self._histories[name] = history
                if history and history[0][1] is not None:
                    self._texts[name] = history[0][1]

    def passed(self, at: int) -> None:
        """Everything up to here is durable, with the position."""
        for name, history in self._histories.items():
            if len(history) > 1:
                self._histories[name] = _counting(history, at)

    # -- looked up by the log ----------------------------------------------------------------------------

    def find(self, name: str) -> Captured | None:
        """The table that a change is of; made when the first change of it comes. KeyError: nobody has told of it."""
        if is_internal(name) or name == self._config.cdc_table or not self._config.wants(f"main.{name}"):
            found = None
        else:
            found = self._make(name, self._texts[name])
        self.captured[name] = found
        return found

    def _make(self, name: str, sql: str) -> Captured:
        definition = self._definitions.definition(name, sql)
        if (wrong := problem(definition, self._config)) is not None:
            raise StartRefusedError(wrong[0], source=self._source, thread=1, hint=wrong[1])
        made = self._maker.make(definition)
        self.seen[definition.full_name] = made.table
        return made

    # -- moved on ----------------------------------------------------------------------------------------

    def define(self, name: str, sql: str, change_id: int) -> None:
        if is_internal(name) or self._texts.get(name) == sql:
            return
        self._set(name, sql, change_id)
        if self._config.wants(f"main.{name}") and name != self._config.cdc_table:
            # a new version begins here, also if no row of it comes for long: it may have to be copied
            self.find(name)

    def _set(self, name: str, sql: str | None, change_id: int) -> None:
        history = self._histories.setdefault(name, [])
        history.append((change_id, sql))
        self.notes[_NOTE + name] = json.dumps(history).encode()
        self.captured.pop(name, None)
        if sql is None:
            self._texts.pop(name, None)
        else:
            self._texts[name] = sql

    def drop(self, name: str, change_id: int) -> Captured | None:
        """What its rows were captured as, for the word that they are gone."""
        if name not in self._texts:
            return None
        last = self.captured.get(name) or self.find(name)
        self._set(name, None, change_id)
        return last

    def adopt(self, texts: Mapping[str, str], change_id: int) -> None:
        """At the log's end, from the database itself."""
        for name, sql in texts.items():
            if self._texts.get(name) != sql:
                self._warn(name, "the database has it otherwise than its log said")
                self.define(name, sql, change_id)
        for name in [name for name in self._texts if name not in texts]:
            self._warn(name, "it is gone, without a word in the log: dropped or renamed")
            self._set(name, None, change_id)
        self.is_unsure = False

    def adopt_wider(self, name: str, texts: Mapping[str, str], change_id: int, width: int) -> Captured | None:
        """A row has more columns than its table: one was added behind the log's back, if the database now has them."""
        sql = texts.get(name)
        if sql is None:
            return None
        now = self._definitions.definition(name, sql)
        before = self._definitions.definition(name, self._texts[name]).cells if name in self._texts else ()
        if len(now.cells) != width or now.cells[: len(before)] != before:
            return None
        self._warn(name, "the log did not tell of its columns")
        self.define(name, sql, change_id)
        return self.captured.get(name)

    def _warn(self, name: str, what: str) -> None:
        _log.warning("schema taken from the database", source=self._source, table=name, why=what)

    def take_notes(self) -> dict[str, bytes]:
        notes, self.notes = self.notes, {}
        return notes


def missing_table(name: str, source: str, change_id: int) -> LogUnknownError:
    return LogUnknownError(
        f"a change of main.{name}, of which neither the log nor the database tells",
        source=source,
        thread=1,
        position=str(change_id),
        hint="it was made by a connection that does not capture, and dropped since: leave it out of `tables`",
    )


def check_tables(texts: Mapping[str, str], definitions: Definitions, config: TursoConfig) -> Iterable[tuple[str, str]]:
    """What is wrong with the tables that the config names, each with what to do."""
    names = {f"main.{name}": name for name in texts if name != config.cdc_table}
    for wanted in config.tables:
        if not wanted.endswith(".*") and wanted not in names:
            yield f"no such table: {wanted}", "tables are by `main.table`, as sqlite_schema writes them"
    for full_name, name in names.items():
        if config.wants(full_name):
            wrong = problem(definitions.definition(name, texts[name]), config)
            if wrong is not None:
                yield wrong
