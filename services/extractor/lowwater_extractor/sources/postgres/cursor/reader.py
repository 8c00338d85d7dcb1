"""Reads rows by cursor columns, in batches, in one snapshot for all tables.

Values are converted from the server's text with the same type mapping as values of the log.
"""

from __future__ import annotations

import select
from collections.abc import Generator, Iterator, Mapping
from typing import NoReturn

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LowwaterError, SourceLostError
from lowwater_extractor.api import Encoders
from lowwater_extractor.incremental.cursor_checks import VALUE_ERRORS, value_error
from lowwater_extractor.incremental.cursors import LOWEST, Bound, Range
from lowwater_extractor.incremental.stream import UpperBounds
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import as_source_error, named_errors
from lowwater_extractor.sources.postgres.cursor import query as cursor_sql
from lowwater_extractor.sources.postgres.cursor.query import Cursored
from lowwater_extractor.sources.postgres.cursor.setup import CursoredTable, find_cursored
from lowwater_extractor.sources.postgres.types import column_type
from lowwater_extractor.sources.postgres.wire.text_values import Convert

#: how long one step waits for an answer; most answers arrive within it
STEP_MILLISECONDS = 10
#: rows per FETCH: initial value and maximum
FETCH_ROWS, FETCH_ROWS_MAX = 16, 20_000

_SETTINGS = (
    # a paused reader must not hold its snapshot indefinitely; a new attempt takes a new one
    "SET idle_in_transaction_session_timeout = '10min'",
    "SET statement_timeout = 0",
    # optimize for reading all rows, not the first ones
    "SET cursor_tuple_fraction = 1",
)
#: errors that a new attempt can resolve: recovery conflicts on a standby, tables altered since they were read
_PASSING = ("40001", "40P01", "42703", "42P01", "42804", "57014", "25P03", "25P04")

Ask = Generator[None, None, pq.abc.PGresult]


class CursorReader:
    def __init__(
        self, config: PostgresConfig, source: str, catalogue: DatabaseCatalogue, tables: list[CursoredTable],
        encoders: Encoders,
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._tables: dict[str, Cursored] = {table.name: table.cursored for table in tables}
        self._encoders = encoders
        self._is_begun = False
        self._fetch_rows = FETCH_ROWS
        self.seen: dict[str, TableSchema] = {}
        for statement in _SETTINGS:
            catalogue.ask(statement)

    def look(self, committed: Mapping[str, Bound | None]) -> Generator[None, None, UpperBounds]:
        yield from self._begin()
        found = yield from self._ask(cursor_sql.AT)
        at_us, at = (_text(found.get_value(0, column)) for column in (0, 1))
        look = UpperBounds(int(at_us or 0), {}, {})
        for name, after in committed.items():
            table = self._tables[name]
            found = yield from self._ask(
                cursor_sql.last_row(table, after, at or "", self._config.settle_seconds), name
            )  # fmt: skip
            if found.ntuples:
                bound = tuple(_text(found.get_value(0, column)) for column in range(found.nfields))
                (look.settled if table.tells_time else look.unsettled)[name] = bound
            elif after is None:
                look.settled[name] = LOWEST
        return look

    def rows(self, ranges: Mapping[str, Range], at_us: int) -> Iterator[list[bytes]]:
        for _ in self._begin():
            yield []
        # as of the snapshot: a table version starts with the sync that reads its rows
        found = {t.name: t for t in find_cursored(self._config, self._catalogue)}
        for name, wanted in ranges.items():
            if name not in found or found[name].cursored != self._tables[name]:
                raise SourceLostError(
                    f"{name} was altered: its definition is read again", source=self._source, hint="it is tried again"
                )
            yield from self._table_rows(_Shape(found[name], self._encoders, self.seen), wanted, at_us)

    def _table_rows(self, shape: _Shape, wanted: Range, at_us: int) -> Iterator[list[bytes]]:
        name = shape.table.full_name
        asked = cursor_sql.rows(self._tables[name], [column.name for column in shape.table.columns], wanted)
        for _ in self._ask(asked, name):
            yield []
        while True:
            fetch = sql.SQL("FETCH {} FROM {}").format(sql.Literal(self._fetch_rows), cursor_sql.SERVER_CURSOR)
            asking, found = self._ask(fetch, name), None
            while found is None:
                try:
                    next(asking)
                except StopIteration as ended:
                    found = ended.value
                else:
                    yield []
            if not found.ntuples:
                break
            piece = shape.frames(found, at_us)
            self._fit_fetch(sum(map(len, piece)), len(piece))
            yield piece
        for _ in self._ask(sql.SQL("CLOSE {}").format(cursor_sql.SERVER_CURSOR)):
            yield []

    def _fit_fetch(self, size: int, count: int) -> None:
        """Adapt the rows per FETCH so that a batch has about `read_bytes`: wide rows need smaller batches."""
        wanted = count * self._config.read_bytes // max(1, size)
        self._fetch_rows = max(1, min(wanted, 8 * self._fetch_rows, FETCH_ROWS_MAX))

    # -- queries -----------------------------------------------------------------------------------------

    def _begin(self) -> Generator[None, None, None]:
        if not self._is_begun:
            yield from self._ask(sql.SQL("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            self._is_begun = True

    def _ask(self, statement: sql.Composable, what: str = "read") -> Ask:
        """Run a statement. Yields while there is no answer yet, and returns the answer."""
        connection = self._catalogue.connection
        pg = connection.pgconn
        with named_errors(self._source, what):
            pg.send_query(statement.as_bytes(connection))
        while not self._has_answer(pg, what):
            yield
        result = pg.get_result()
        while pg.get_result() is not None:
            pass
        if result is None:
            raise SourceLostError(f"{what}: no answer", source=self._source, hint="it is tried again")
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            self._refuse(error_from_result(result), what)
        return result

    def _has_answer(self, pg: pq.abc.PGconn, what: str) -> bool:
        waiting = select.poll()
        waiting.register(pg.socket, select.POLLIN)
        waiting.poll(STEP_MILLISECONDS)
        with named_errors(self._source, what):
            pg.consume_input()
        return not pg.is_busy()

    def _refuse(self, error: psycopg.Error, what: str) -> NoReturn:
        if (error.sqlstate or "") in _PASSING:
            text = error.diag.message_primary or str(error)
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
        self._converts: list[Convert] = [
            column_type(*found.pg_types[column.name], as_text=column.name in found.as_text).convert
            for column in self.table.columns
        ]

    def frames(self, result: pq.abc.PGresult, ts_us: int) -> list[bytes]:
        header, body, get, width = self._encoder.header, self._encoder.body, result.get_value, len(self._converts)
        found = []
        for number in range(result.ntuples):
            texts = [get(number, column) for column in range(width)]
            found.append(header + body("r", None, self._row(texts), ts_us))
        return found

    def _row(self, texts: list[bytes | None]) -> list[object]:
        try:
            return [None if v is None else convert(v) for convert, v in zip(self._converts, texts, strict=True)]
        except VALUE_ERRORS as error:
            raise self._explain(texts, error) from error

    def _explain(self, texts: list[bytes | None], error: Exception) -> LowwaterError:
        """Find the column that failed. The message does not contain the value."""
        for column, convert, text in zip(self.table.columns, self._converts, texts, strict=True):
            try:
                if text is not None:
                    convert(text)
            except VALUE_ERRORS as cause:
                return value_error(self.table, column.name, cause, "capture the column `as_text`, and report it")
        return CodecError(f"{self.table.full_name}: {error}", source=self.table.source)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
