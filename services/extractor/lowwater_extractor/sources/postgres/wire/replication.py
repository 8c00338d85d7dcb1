"""The replication connection: START_REPLICATION, received messages, status updates."""

from __future__ import annotations

import struct
import time
from typing import Any

from psycopg import pq, sql

from lowwater.errors import LogGapError, SourceError, SourceLostError
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.connect import connect_replication, named_errors
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, format_lsn
from lowwater_extractor.sources.postgres.wire.messages import EPOCH_2000_US

#: SQLSTATE classes of temporary failures; an error without SQLSTATE is temporary as well
_PASSING = ("57", "08")
_STATUS = struct.Struct(">cQQQqB")
#: the server closes a connection without status updates after wal_sender_timeout, by default one minute
STATUS_SECONDS = 5.0


class Replication:
    """A replication stream. After the constructor nothing here blocks."""

    def __init__(self, config: PostgresConfig, source: str, slot: str, publications: list[str], start: Lsn) -> None:
        self._source = source
        self._connection = connect_replication(config, source)
        self._sent_at = 0.0
        #: durable in Kafka up to this LSN: the server may remove the log before it
        self.confirmed = start
        try:
            self._pg: Any = self._begin(slot, publications, start)
        except BaseException:
            self._connection.close()
            raise

    def _begin(self, slot: str, publications: list[str], start: Lsn) -> Any:
        names = ",".join(f'"{name}"' for name in publications)
        options = {"proto_version": "2", "publication_names": names, "streaming": "on", "messages": "on"}
        given = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(k), sql.Literal(v)) for k, v in options.items()
        )
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL {} ({})").format(
            sql.Identifier(slot), sql.SQL(format_lsn(start)), given
        )
        pg = self._connection.pgconn
        result = pg.exec_(command.as_string(self._connection).encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise self._refused(result, slot)
        pg.nonblocking = 1
        return pg

    def _refused(self, result: Any, slot: str) -> SourceError:
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"no answer").decode()
        if state == "55006":
            return SourceLostError(
                f"slot {slot} is in use: {text}", source=self._source, hint="another extractor reads it, or its server "
                "process has not ended yet; it is tried again",
            )  # fmt: skip
        if state in ("42704", "55000"):
            return LogGapError(
                f"slot {slot}: {text}", source=self._source,
                hint="the slot was dropped or invalidated, so log that was not captured is lost: reset the source's "
                "position, and its tables are copied again",
            )  # fmt: skip
        if not state or state.startswith(_PASSING):
            return SourceLostError(f"START_REPLICATION: {text}", source=self._source, hint="it is tried again")
        return SourceError(f"START_REPLICATION: {text} ({state})", source=self._source)

    def receive(self, bytes_max: int) -> tuple[list[bytes], bool]:
        """Return the available messages, up to about `bytes_max` bytes, and whether there are no more."""
        found: list[bytes] = []
        get = self._pg.get_copy_data
        is_fresh = False
        with named_errors(self._source, "read the log"):
            while bytes_max > 0:
                size, data = get(1)
                if size > 0:
                    found.append(bytes(data))
                    bytes_max -= size
                    is_fresh = False
                elif size < 0:
                    raise self._ended()
                elif is_fresh:
                    return found, True
                else:
                    self._pg.consume_input()
                    is_fresh = True
        return found, False

    def _ended(self) -> SourceError:
        result = self._pg.get_result()
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() if result else ""
        text = (result.error_message if result else b"").decode().strip() or "the server ended the stream"
        if state == "42704" and "publication" in text:
            return LogGapError(
                text, source=self._source, hint="it was dropped, and changes were written meanwhile: reset the "
                "source's position; publication and slot are recreated and its tables copied again",
            )  # fmt: skip
        if not state or state.startswith(_PASSING):
            return SourceLostError(text, source=self._source, hint="it is tried again; is the server up?")
        return SourceError(f"{text} ({state})", source=self._source)

    def status(self, *, now: bool = False, wants_reply: bool = False) -> None:
        """Send a status update with `confirmed`, at most every STATUS_SECONDS unless `now`."""
        if not now and time.monotonic() - self._sent_at < STATUS_SECONDS:
            return
        lsn = self.confirmed
        at = time.time_ns() // 1000 - EPOCH_2000_US
        with named_errors(self._source, "acknowledge"):
            self._pg.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, at, wants_reply))
            self._pg.flush()
        self._sent_at = time.monotonic()

    def close(self) -> None:
        # without `with`, because psycopg would send COMMIT into the stream
        self._connection.close()
