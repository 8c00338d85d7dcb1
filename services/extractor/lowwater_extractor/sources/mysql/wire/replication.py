"""The replication connection, on which this process acts as a replica."""

from __future__ import annotations

import struct
import time
from typing import Any

from pymysql import MySQLError
from pymysql.connections import Connection
from pymysql.constants import COMMAND

from lowwater.errors import IncarnationError, LogGapError, SourceError, SourceLostError
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.connect import as_source_error, connect, error_of, named_errors, query
from lowwater_extractor.sources.mysql.position import Place
from lowwater_extractor.sources.mysql.server import Server
from lowwater_extractor.sources.mysql.wire._native.split import split_events
from lowwater_extractor.sources.mysql.wire.gtid import GtidSet
from lowwater_extractor.sources.mysql.wire.packets import Packets, error_of_packet

_REGISTER = COMMAND.COM_REGISTER_SLAVE
_DUMP = COMMAND.COM_BINLOG_DUMP
_DUMP_GTID = 0x1E
#: flag: the command contains a GTID set
_THROUGH_GTID = 0x04
#: offset of the first event in a file
FIRST = 4

_CANNOT_READ = 1236
_PURGED = ("purged", "could not find first log file", "could not find gtid state", "find next log")
_OTHER = (
    "more gtids than",
    "not in the master's binlog",
    "not in the source's binlog",
    "diverged",
    "impossible position",
)


def register(connection: Connection[Any], number: int, source: str) -> None:
    """Register as a replica. Raises SourceError if the user lacks the privilege."""
    # host, user and password, which SHOW REPLICAS would display, are left empty
    with named_errors(source, "register as a replica"):
        command: Any = connection
        command._execute_command(_REGISTER, struct.pack("<IBBBHII", number, 0, 0, 0, 0, 0, 0))
        command._read_packet()


class Replication:
    def __init__(self, config: MysqlConfig, source: str, server: Server, start: Place) -> None:
        self._config = config
        self._source = source
        self._server = server
        connection = connect(config, source)
        try:
            self._prepare(connection, start)
            self._packets = self._dump(connection, start)
        except BaseException:
            connection.close()
            raise
        self._heard_at = time.monotonic()

    def _prepare(self, connection: Connection[Any], start: Place) -> None:
        period = int(self._config.heartbeat_seconds * 1e9)
        checksum = self._server.get("binlog_checksum") or "NONE"
        settings: dict[str, object] = {
            # old servers read the first name, new servers the second
            "@master_binlog_checksum": checksum, "@source_binlog_checksum": checksum,
            "@master_heartbeat_period": period, "@source_heartbeat_period": period,
        }  # fmt: skip
        if self._server.is_mariadb:
            settings |= {
                "@mariadb_slave_capability": 4, "@slave_connect_state": start.gtids or "",
                "@slave_gtid_strict_mode": 0, "@slave_gtid_ignore_duplicates": 0,
            }  # fmt: skip
        else:
            name = self._config.replica_uuid_of(self._source)
            settings |= {"@slave_uuid": name, "@replica_uuid": name}
        query(connection, self._source, f"SET {', '.join(f'{name} = %s' for name in settings)}", *settings.values())

    def _dump(self, connection: Connection[Any], start: Place) -> Packets:
        number = self._config.server_id_of(self._source)
        register(connection, number, self._source)
        with named_errors(self._source, "ask for the log"):
            command: Any = connection
            if start.gtids is not None and not self._server.is_mariadb:
                data = GtidSet.parse(start.gtids).encode()
                head = struct.pack("<HIIQI", _THROUGH_GTID, number, 0, FIRST, len(data))
                command._execute_command(_DUMP_GTID, head + data)
            else:
                is_named = start.gtids is None
                file = start.file.encode() if is_named else b""
                position = start.position if is_named else FIRST
                command._execute_command(_DUMP, struct.pack("<IHI", position, 0, number) + file)
        return Packets(connection, self._source, "read the log")

    def receive(self, bytes_max: int) -> tuple[list[bytes], bool]:
        """Return the available events, up to about `bytes_max` bytes, and whether there are no more.

        Raises SourceLostError after `silence_seconds_max` without data.
        """
        data, is_empty = self._packets.receive(bytes_max)
        found, rest, end = split_events(data)
        self._packets.keep(rest)
        now = time.monotonic()
        if found:
            self._heard_at = now
        elif now - self._heard_at > self._config.silence_seconds_max:
            raise SourceLostError(
                f"no data from the server for {now - self._heard_at:.0f} s", source=self._source,
                hint="it is tried again; is there a firewall that drops idle connections?",
            )  # fmt: skip
        if end:
            if found:
                # return the events before the error
                self._packets.keep(len(end).to_bytes(3, "little") + b"\x00" + end)
                return found, False
            raise self._ended(end)
        return found, is_empty

    def _ended(self, payload: bytes) -> SourceError:
        if payload[0] != 0xFF:
            return SourceLostError("the server has ended the log", source=self._source, hint="it is tried again")
        return self._refused(error_of_packet(payload))

    def _refused(self, error: MySQLError) -> SourceError:
        code, text = error_of(error)
        if code == _CANNOT_READ:
            words = text.lower()
            if any(part in words for part in _OTHER):
                return IncarnationError(
                    f"the server's log is not the one that was read before: {text}", source=self._source,
                    hint="it was restored, reset or replaced: reset the source's position, its tables are copied again",
                )  # fmt: skip
            if any(part in words for part in _PURGED):
                return LogGapError(
                    f"the server has purged log that is still needed: {text}", source=self._source, thread=1,
                    hint="reset the source's position, its tables are copied again; raise binlog_expire_logs_seconds",
                )  # fmt: skip
            if "same server_uuid" in words or "server_id" in words:
                return SourceLostError(
                    f"another reader has taken over: {text}", source=self._source,
                    hint="it is tried again; if the error occurs again, give each source its own server_id",
                )  # fmt: skip
            return LogGapError(
                f"the server cannot read its log: {text}", source=self._source, thread=1,
                hint="see the server's error log; if log is lost, reset the source's position",
            )  # fmt: skip
        return as_source_error(error, self._source, "read the log")

    def close(self) -> None:
        self._packets.close()
