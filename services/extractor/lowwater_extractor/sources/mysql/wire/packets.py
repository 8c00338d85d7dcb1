"""Reads the packets of a connection in bulk. Nothing here blocks except `wait`.

The driver opens the connection (handshake, password, TLS). Large answers are then read directly from its socket,
because the driver reads packet by packet.
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
    """Takes over a connection's socket, after a command with a large answer was sent."""

    def __init__(self, connection: Connection[Any], source: str, what: str) -> None:
        self._connection: Any = connection
        self._socket: Any = connection._sock  # type: ignore[attr-defined]
        self._source = source
        self._what = what
        self._rest = b""
        self._socket.setblocking(False)

    def receive(self, bytes_max: int) -> tuple[bytes, bool]:
        """Return the available data, at least one read and about `bytes_max` at most, and whether there is no more.

        Raises SourceLostError if the connection is lost.
        """
        parts = [self._rest]
        size = 0
        is_empty = False
        try:
            while size < bytes_max:
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    if size:
                        # return the data before the end of the connection first
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
        """Keep an incomplete packet for the next `receive`."""
        self._rest = rest

    def wait(self, seconds: float) -> None:
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.poll(int(seconds * 1000))

    def give_back(self) -> None:
        """Return the socket to the driver, after the answer has ended."""
        self._socket.setblocking(True)

    def close(self) -> None:
        """Close without COM_QUIT, which the server would not read in the middle of an answer."""
        self._connection._force_close()

    def _lost(self, why: str) -> SourceLostError:
        return SourceLostError(f"{self._what}: {why}", source=self._source, hint="it is tried again; is the server up?")


def error_of_packet(payload: bytes) -> err.MySQLError:
    """Return the error of a payload that starts with 0xff."""
    code = int.from_bytes(payload[1:3], "little")
    text = payload[3:]
    if text[:1] == b"#":
        text = text[6:]
    return err.OperationalError(code, text.decode(errors="replace"))
