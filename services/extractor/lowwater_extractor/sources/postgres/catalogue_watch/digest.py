"""Asks now and then for the numbers that stand for the catalogue of the captured tables, while the stream goes on."""

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
#: while transactions wait for the answer
WAITED_SECONDS, WAITED_SECONDS_MAX = 0.01, 1.0
#: of the time of one of the server's cores, about
SHARE = 0.05


class Digest(NamedTuple):
    """Each is another one after any change."""

    #: of the tables
    tables: str
    #: of what counts for all of them: settings of publications, types
    shared: str


class Answer(NamedTuple):
    digest: Digest
    #: the transactions whose doings it has
    seen: Seen


class DigestAsker:
    """Over a connection of its own. Where it takes the server long, it is asked less often."""

    def __init__(self, config: PostgresConfig, source: str, publications: Sequence[str]) -> None:
        self._config = config
        self._source = source
        self._publications = publications
        self._connection: psycopg.Connection[Any] | None = None
        self._is_asked = False
        #: how long the server took last
        self._seconds = 0.0
        self._answered_at = -WATCH_SECONDS_MAX
        #: composite types that columns are of
        self.composites: set[int] = set()

    def poll(self, *, is_waited_for: bool) -> Answer | None:
        """Never waits; None most of the time."""
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
        """Waits for the answer."""
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
        # by the server's own time: here much else is done in between
        self._seconds, self._answered_at = float(seconds or 0), now
        self._is_asked = False
        return Answer(Digest(tables, shared), Seen.parse(snapshot))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
