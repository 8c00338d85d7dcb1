"""The replication connection: START_REPLICATION, messages in, status updates out."""

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

#: classes of SQLSTATE after which the server can come back; and none at all
_PASSING = ("57", "08")
_STATUS = struct.Struct(">cQQQqB")
#: the server ends a connection that is silent for wal_sender_timeout, a minute unless told otherwise
STATUS_SECONDS = 5.0


class Replication:
    """One walsender, from START_REPLICATION on. Nothing here waits for data."""

    def __init__(self, config: PostgresConfig, source: str, slot: str, publications: list[str], start: Lsn) -> None:
        self._source = source
        self._connection = connect_replication(config, source)
        self._sent_at = 0.0
        #: what is durable in Kafka: the server may let go of it
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
                hint="the slot was dropped or invalidated, so log is lost that was not captured: reset the source's "
                "position, and its tables are copied anew",
            )  # fmt: skip
        if not state or state.startswith(_PASSING):
            return SourceLostError(f"START_REPLICATION: {text}", source=self._source, hint="it is tried again")
        return SourceError(f"START_REPLICATION: {text} ({state})", source=self._source)

    def receive(self, bytes_max: int) -> tuple[list[bytes], bool]:
        """What has come, up to about so many bytes; and whether that was all."""
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
                "source's position; publication and slot are made anew and its tables copied anew",
            )  # fmt: skip
        if not state or state.startswith(_PASSING):
            return SourceLostError(text, source=self._source, hint="it is tried again; is the server up?")
        return SourceError(f"{text} ({state})", source=self._source)

    def status(self, *, now: bool = False, wants_reply: bool = False) -> None:
        """Tell the server what is durable; at least every few seconds."""
        if not now and time.monotonic() - self._sent_at < STATUS_SECONDS:
            return
        lsn = self.confirmed
        at = time.time_ns() // 1000 - EPOCH_2000_US
        with named_errors(self._source, "acknowledge"):
            self._pg.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, at, wants_reply))
            self._pg.flush()
        self._sent_at = time.monotonic()

    def close(self) -> None:
        # not by `with`: psycopg would send a COMMIT into the stream
        self._connection.close()
