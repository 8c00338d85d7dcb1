"""Creates a replication slot without blocking. The server creates it once all running transactions have ended."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import pq, sql

from lowwater.errors import SourceError, SourceLostError
from lowwater_extractor.sources.postgres.connect import named_errors
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, parse_lsn

#: SQLSTATE classes of temporary failures
_PASSING = ("57", "08")


class MadeSlot(NamedTuple):
    #: the consistent point: every transaction that commits after it is decoded completely
    point: Lsn
    #: name of the exported snapshot; empty without export
    snapshot: str


class SlotRequest:
    """Sends `command` over a replication connection. Nothing here blocks: the caller polls `made`."""

    def __init__(self, connection: psycopg.Connection[Any], source: str, command: sql.Composed) -> None:
        self._pg = connection.pgconn
        self._source = source
        with named_errors(source, "make a slot"):
            self._pg.send_query(command.as_string(connection).encode())

    def made(self) -> MadeSlot | None:
        """Return the slot, or None while the server is still creating it. Raises SourceError if the server refuses."""
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
        """Cancel the command. Otherwise the walsender keeps waiting and creates a slot that is never read."""
        # a lost connection has nothing to cancel
        with suppress(psycopg.Error):
            self._pg.get_cancel().cancel()
