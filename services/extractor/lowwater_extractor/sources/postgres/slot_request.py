"""A slot that is asked for: the server makes it once every transaction that was running has ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql

from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.sources.postgres.connect import named_errors
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, parse_lsn

#: classes of SQLSTATE after which the server can come back
_PASSING = ("57", "08")


class MadeSlot(NamedTuple):
    #: what commits behind it comes whole
    point: Lsn
    #: empty, unless it was to be exported
    snapshot: str


class SlotRequest:
    """`connection` speaks the replication protocol. Nothing here waits: `made` is asked now and then."""

    def __init__(self, connection: psycopg.Connection[Any], source: str, command: sql.Composed) -> None:
        self._pg = connection.pgconn
        self._source = source
        with named_errors(source, "make a slot"):
            self._pg.send_query(command.as_string(connection).encode())

    def made(self) -> MadeSlot | None:
        with named_errors(self._source, "make a slot"):
            self._pg.consume_input()
            if self._pg.is_busy():
                return None
            result = self._pg.get_result()
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            raise self._refused(result)
        point, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        assert point is not None
        return MadeSlot(parse_lsn(point.decode()), (snapshot or b"").decode())

    def _refused(self, result: pq.abc.PGresult | None) -> SourceError:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result else ""
        text = (result.error_message if result else b"no answer").decode().strip()
        if not state or state.startswith(_PASSING):
            return SourceLostError(f"make a slot: {text}", source=self._source, hint="it is tried again")
        return SourceError(
            f"make a slot: {text}", source=self._source, hint="raise max_replication_slots and max_wal_senders"
        )

    def cancel(self) -> None:
        """Else the server's process would go on waiting, and make a slot that nobody reads."""
        # a server that is not there any more does not wait either
        with suppress(psycopg.Error):
            self._pg.get_cancel().cancel()
