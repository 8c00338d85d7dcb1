"""The answer of a SELECT, in bulk: rows as they come over the wire, and columns out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from pymysql.connections import Connection
from pymysql.constants import COMMAND

from lowwater_extractor.sources.mysql.connect import named_errors
from lowwater_extractor.sources.mysql.wire._native.split import split
from lowwater_extractor.sources.mysql.wire.packets import Packets, error_of_packet
from lowwater_extractor.sources.mysql.wire.table_map import packed

_END, _ERROR, _NULL = 0xFE, 0xFF, 251
#: an end has fewer bytes than a row that begins with the same
_END_BYTES_MAX = 9

#: rows → one list for each column
Transpose = Callable[[Sequence[bytes]], list[list[bytes | None]]]


class Answer:
    """Of one statement. A step never waits; `wait` does. Once it is over, the driver may use the connection again."""

    def __init__(self, connection: Connection[Any], source: str, statement: str) -> None:
        command: Any = connection
        with named_errors(source, "query"):
            command._execute_command(COMMAND.COM_QUERY, statement)
        self._source = source
        self._packets = Packets(connection, source, "query")
        #: descriptions of columns, and the end behind them, that are still to come; -1: how many is not known yet
        self._before = -1
        self.is_over = False

    def wait(self, seconds: float) -> None:
        self._packets.wait(seconds)

    def rows(self, bytes_max: int) -> list[bytes]:
        """Rows that have come. None of them: there may be more to come, see `is_over`."""
        data, _ = self._packets.receive(bytes_max)
        found, rest = split(data)
        self._packets.keep(rest)
        at = 0
        while at < len(found) and self._before:
            self._check(found[at])
            # how many columns there are, their descriptions, and an end
            self._before = self._before - 1 if self._before > 0 else packed(found[at], 0)[0] + 1
            at += 1
        if at:
            found = found[at:]
        if found and (found[-1][0] == _ERROR or (found[-1][0] == _END and len(found[-1]) < _END_BYTES_MAX)):
            # nothing comes behind it; no row in between begins so
            last = found.pop()
            self._check(last)
            self.is_over = True
            self._packets.give_back()
        return found

    def _check(self, payload: bytes) -> None:
        if payload[0] == _ERROR:
            self._packets.give_back()
            raise error_of_packet(payload)

    def close(self) -> None:
        """In the middle: the connection cannot be used any more."""
        if not self.is_over:
            self._packets.close()


@lru_cache(maxsize=256)
def transpose(count: int) -> Transpose:
    """Written for one number of columns, then compiled: a loop over them takes twice as long."""
    lines = ["def columns(rows):"]
    lines += [f"    c{i} = []; a{i} = c{i}.append" for i in range(count)]
    lines += ["    for m in rows:", "        p = 0"]
    for i in range(count):
        lines += [
            "        n = m[p]",
            f"        if n < {_NULL}:",
            "            e = p + 1 + n",
            f"            a{i}(m[p + 1:e])",
            "            p = e",
            f"        elif n == {_NULL}:",
            f"            a{i}(None)",
            "            p += 1",
            "        else:",
            "            n, p = packed(m, p)",
            f"            a{i}(m[p:p + n])",
            "            p += n",
        ]
    lines += [
        "        if p != len(m):",
        "            raise ValueError('a row that does not end where its packet does')",
    ]
    lines.append(f"    return [{', '.join(f'c{i}' for i in range(count))}]")
    scope: dict[str, Any] = {"packed": packed}
    exec("\n".join(lines), scope)
    made: Transpose = scope["columns"]
    return made
