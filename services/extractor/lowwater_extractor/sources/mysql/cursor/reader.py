"""Reads rows by cursor columns, in batches, in one snapshot for all tables.

Values are converted from the server's text to the same published types as values of the log.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager

from pymysql import MySQLError

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import SourceLostError
from lowwater_extractor.api import Encoders
from lowwater_extractor.incremental.cursor_checks import VALUE_ERRORS, value_error
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.incremental.stream import UpperBounds
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import as_source_error, error_of
from lowwater_extractor.sources.mysql.cursor import query as cursor_sql
from lowwater_extractor.sources.mysql.cursor.query import Cursored
from lowwater_extractor.sources.mysql.cursor.setup import CursoredTable, find_cursored
from lowwater_extractor.sources.mysql.snapshot.visibility import REPEATABLE, SNAPSHOT
from lowwater_extractor.sources.mysql.wire.result import Answer, transpose

#: how long one step waits for an answer; most answers arrive within it
STEP_SECONDS = 0.01
#: errors that a new attempt can resolve: tables altered since they were read, deadlocks
_PASSING = (1146, 1054, 1412, 1213, 1205)


class CursorReader:
    def __init__(
        self, config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, tables: list[CursoredTable],
        encoders: Encoders,
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._tables: dict[str, Cursored] = {table.name: table.cursored for table in tables}
        self._encoders = encoders
        self._is_begun = False
        self.seen: dict[str, TableSchema] = {}
        catalogue.ask(REPEATABLE)

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        self._begin()
        ((at_us,),) = self._catalogue.ask(cursor_sql.AT)
        look = UpperBounds(int(at_us), {}, {})
        for name, after in committed.items():
            table = self._tables[name]
            statement = cursor_sql.last_row(table, after, look.at_us, self._config.settle_seconds)
            found: list[bytes] = []
            for rows in self._ask(statement, name):
                found += rows
                yield
            if found:
                columns = transpose(len(table.cursor))(found[:1])
                bound = tuple(None if column[0] is None else column[0].decode() for column in columns)
                (look.settled if table.tells_time else look.unsettled)[name] = bound
            elif after is None:
                look.settled[name] = LOWEST
        return look

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        self._begin()
        found = {t.name: t for t in find_cursored(self._config, self._source, self._catalogue)}
        for name, wanted in ranges.items():
            if name not in found or found[name].cursored != self._tables[name]:
                raise SourceLostError(
                    f"{name} was altered: its definition is read again", source=self._source, hint="it is tried again"
                )
            shape = _Shape(found[name], self._encoders, self.seen)
            for rows in self._ask(cursor_sql.rows(self._tables[name], shape.expressions, wanted), name):
                yield shape.frames(rows, at_us) if rows else []

    # -- queries -----------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if not self._is_begun:
            self._catalogue.ask(SNAPSHOT)
            self._is_begun = True

    def _ask(self, statement: str, what: str) -> Iterator[list[bytes]]:
        """Yield rows as they arrive, and an empty list whenever none are available."""
        with self._named(what):
            answer = Answer(self._catalogue.connection, self._source, statement)
            while not answer.is_over:
                rows = answer.rows(self._config.read_bytes)
                if not rows and not answer.is_over:
                    answer.wait(STEP_SECONDS)
                yield rows

    @contextmanager
    def _named(self, what: str) -> Iterator[None]:
        try:
            yield
        except MySQLError as error:
            code, text = error_of(error)
            if code in _PASSING:
                raise SourceLostError(f"{what}: {text}", source=self._source, hint="it is tried again") from error
            raise as_source_error(error, self._source, what) from error

    def end(self) -> None:
        if self._is_begun:
            self._is_begun = False
            self._catalogue.ask("ROLLBACK")

    def close(self) -> None:
        self._catalogue.close()


class _Shape:
    """A table version and the conversion of its rows."""

    def __init__(self, found: CursoredTable, encoders: Encoders, seen: dict[str, TableSchema]) -> None:
        self.table = encoders.versioned(found.schema)
        seen[self.table.full_name] = self.table
        self._encoder: TableEncoder = encoders.encoder(self.table)
        self._columns = found.columns
        self.expressions = [column.expression for column in found.columns]

    def frames(self, rows: list[bytes], ts_us: int) -> list[bytes]:
        header, body = self._encoder.header, self._encoder.body
        values = list(map(self._converted, range(len(self._columns)), transpose(len(self._columns))(rows)))
        return [header + body("r", None, row, ts_us) for row in zip(*values, strict=True)]

    def _converted(self, place: int, texts: list[bytes | None]) -> list[object]:
        convert = self._columns[place].convert
        if convert is None:
            return list(texts)
        try:
            return [None if text is None else convert(text) for text in texts]
        except VALUE_ERRORS as error:
            column = self._columns[place].wire.name
            raise value_error(self.table, column, error, "report it with the server's version") from error
