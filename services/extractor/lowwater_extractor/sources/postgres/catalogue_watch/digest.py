"""Periodically queries a digest of the captured tables' catalogue rows, without blocking the stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import psycopg
from psycopg import pq

from lowwater.errors import SourceLostError
from lowwater_extractor.sources.postgres.catalogue import Seen
from lowwater_extractor.sources.postgres.catalogue_watch.facts_query import digest_query
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect, named_errors

WATCH_SECONDS, WATCH_SECONDS_MAX = 1.0, 10.0
#: the same while transactions wait for the answer
WAITED_SECONDS, WAITED_SECONDS_MAX = 0.01, 1.0
#: approximate limit for the load on the server, as a share of one core
SHARE = 0.05


class Digest(NamedTuple):
    """Hashes that change with every relevant catalogue change."""

    #: of the tables themselves
    tables: str
    #: of objects that affect all tables: publication settings, types
    shared: str


class Answer(NamedTuple):
    digest: Digest
    #: the snapshot of the query: transactions that the digest includes
    seen: Seen


class DigestAsker:
    """Queries the digest over a separate connection. The slower the query, the less often it runs."""

    def __init__(self, config: PostgresConfig, source: str, publications: Sequence[str]) -> None:
        self._config = config
        self._source = source
        self._publications = publications
        self._connection: psycopg.Connection[Any] | None = None
        self._is_asked = False
        #: duration of the last query on the server
        self._seconds = 0.0
        self._answered_at = -WATCH_SECONDS_MAX
        #: oids of the relations of composite types that columns use
        self.composites: set[int] = set()

    def poll(self, *, is_waited_for: bool) -> Answer | None:
        """Send the query when it is due, and return its answer once it is available. Never blocks."""
        now = time.monotonic()
        if not self._is_asked:
            least, most = WATCH_SECONDS, WATCH_SECONDS_MAX
            if is_waited_for:
                least, most = WAITED_SECONDS, WAITED_SECONDS_MAX
            if now - self._answered_at >= max(least, min(self._seconds / SHARE, most)):
                self._ask()
            return None
        return self._answer(now)

    def now(self) -> Answer:
        """Run the query and wait for the answer."""
        self._ask()
        while (found := self._answer(time.monotonic())) is None:
            time.sleep(0.001)
        return found

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = connect(self._config, self._source)
        asked = digest_query(self._config.tables, self._publications, sorted(self.composites))
        with named_errors(self._source, "watch the catalogue"):
            self._connection.pgconn.send_query(asked.as_string(self._connection).encode())
        self._is_asked = True

    def _answer(self, now: float) -> Answer | None:
        assert self._connection is not None
        pg = self._connection.pgconn
        with named_errors(self._source, "watch the catalogue"):
            pg.consume_input()
            if pg.is_busy():
                return None
            result = pg.get_result()
            while pg.get_result() is not None:
                pass
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            text = (result.error_message if result else b"no answer").decode().strip()
            raise SourceLostError(f"watch the catalogue: {text}", source=self._source, hint="it is tried again")
        tables, shared, snapshot, seconds = ((result.get_value(0, place) or b"").decode() for place in range(4))
        # measured by the server: this process does other work between sending and receiving
        self._seconds, self._answered_at = float(seconds or 0), now
        self._is_asked = False
        return Answer(Digest(tables, shared), Seen.parse(snapshot))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
