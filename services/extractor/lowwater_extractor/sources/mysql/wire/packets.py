"""The wire: packets of a connection, many at once. Nothing here waits but where it says so.

The driver makes the connection (handshake, passwords, TLS); what comes in bulk is then read from its socket here, for
the driver reads packet by packet.
"""

from __future__ import annotations

import select
import ssl
from typing import Any

from pymysql import err
from pymysql.connections import Connection

from lowwater.errors import SourceLostError

_RECEIVE_BYTES = 1 << 20


class Packets:
    """Takes a connection's socket over, once a command is sent that is answered in bulk."""

    def __init__(self, connection: Connection[Any], source: str, what: str) -> None:
        self._connection: Any = connection
        self._socket: Any = connection._sock  # type: ignore[attr-defined]
        self._source = source
        self._what = what
        self._rest = b""
        self._socket.setblocking(False)

    def receive(self, bytes_max: int) -> tuple[bytes, bool]:
        """What is there, up to a limit and at least one read; and whether there is no more now."""
        parts = [self._rest]
        size = 0
        is_empty = False
        try:
            while size < bytes_max:
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    if size:
                        # its last words come first
                        break
                    raise self._lost("the server has closed the connection")
                parts.append(part)
                size += len(part)
        except (BlockingIOError, ssl.SSLWantReadError):
            is_empty = True
        except OSError as error:
            raise self._lost(str(error)) from error
        self._rest = b""
        return b"".join(parts), is_empty

    def keep(self, rest: bytes) -> None:
        """What is not whole yet."""
        self._rest = rest

    def wait(self, seconds: float) -> None:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(int(seconds * 1000))

    def give_back(self) -> None:
        """The answer is over: the driver may use the connection again."""
        self._socket.setblocking(True)

    def close(self) -> None:
        """Without a word: in the middle of an answer the server would not hear it."""
        self._connection._force_close()

    def _lost(self, why: str) -> SourceLostError:
        return SourceLostError(f"{self._what}: {why}", source=self._source, hint="it is tried again; is the server up?")


def error_of_packet(payload: bytes) -> err.MySQLError:
    """Of a payload that begins with 0xff."""
    code = int.from_bytes(payload[1:3], "little")
    text = payload[3:]
    if text[:1] == b"#":
        text = text[6:]
    return err.OperationalError(code, text.decode(errors="replace"))
