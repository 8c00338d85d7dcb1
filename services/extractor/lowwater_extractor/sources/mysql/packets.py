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
#: a packet of this size goes on in the next one
_WHOLE = 0xFFFFFF


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


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Payloads, and what is not whole yet."""
    found: list[bytes] = []
    at, size = 0, len(data)
    while size - at >= 4:
        end = at + 4 + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
        if end > size:
            break
        if end - at - 4 == _WHOLE:
            whole, end = _joined(data, at)
            if not end:
                break
            found.append(whole)
        else:
            found.append(data[at + 4 : end])
        at = end
    return found, data[at:]


def split_events(data: bytes) -> tuple[list[bytes], bytes, bytes]:
    """Events (a zero stands before each), what is not whole yet, and the payload that ends them, if it has come."""
    found: list[bytes] = []
    append = found.append
    at, size = 0, len(data)
    while size - at >= 5:
        end = at + 4 + (data[at] | data[at + 1] << 8 | data[at + 2] << 16)
        if end > size:
            break
        if data[at + 4]:
            return found, b"", data[at + 4 : end]
        if end - at - 4 == _WHOLE:
            whole, end = _joined(data, at)
            if not end:
                break
            append(whole[1:])
        else:
            append(data[at + 5 : end])
        at = end
    return found, data[at:], b""


def _joined(data: bytes, at: int) -> tuple[bytes, int]:
    """A payload in several packets, and the place behind it; 0: it is not whole yet."""
    parts = []
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 3], "little")
        end = at + 4 + size
        if end > len(data):
            break
        parts.append(data[at + 4 : end])
        at = end
        if size < _WHOLE:
            return b"".join(parts), at
    return b"", 0


def error_of_packet(payload: bytes) -> err.MySQLError:
    """Of a payload that begins with 0xff."""
    code = int.from_bytes(payload[1:3], "little")
    text = payload[3:]
    if text[:1] == b"#":
        text = text[6:]
    return err.OperationalError(code, text.decode(errors="replace"))
