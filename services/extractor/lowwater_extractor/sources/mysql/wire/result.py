"""Reads the result of a SELECT in bulk: rows from the wire, and their conversion to columns."""

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
#: an EOF packet is shorter than a row with the same first byte
_END_BYTES_MAX = 9

#: rows → a list of values per column
Transpose = Callable[[Sequence[bytes]], list[list[bytes | None]]]


class Answer:
    """The result of one statement. Only `wait` blocks. After `is_over` the driver may use the connection again."""

    def __init__(self, connection: Connection[Any], source: str, statement: str) -> None:
        command: Any = connection
        with named_errors(source, "query"):
            command._execute_command(COMMAND.COM_QUERY, statement)
        self._source = source
        self._packets = Packets(connection, source, "query")
        #: column descriptions and EOF that are still expected; -1: their number is unknown yet
        self._before = -1
        self.is_over = False

    def wait(self, seconds: float) -> None:
        self._packets.wait(seconds)

    def rows(self, bytes_max: int) -> list[bytes]:
        """Return the available rows. An empty list does not mean the end, see `is_over`. Raises the server's error."""
        data, _ = self._packets.receive(bytes_max)
        found, rest = split(data)
        self._packets.keep(rest)
        at = 0
        while at < len(found) and self._before:
            self._check(found[at])
            # the column count, the column descriptions, and an EOF packet
            self._before = self._before - 1 if self._before > 0 else packed(found[at], 0)[0] + 1
            at += 1
        if at:
            found = found[at:]
        if found and (found[-1][0] == _ERROR or (found[-1][0] == _END and len(found[-1]) < _END_BYTES_MAX)):
            # it is the last packet: no row starts like this
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
        """Close the connection if the result has not been read completely."""
        if not self.is_over:
            self._packets.close()


@lru_cache(maxsize=256)
def transpose(count: int) -> Transpose:
    """Generate code for `count` columns: a loop over the columns takes twice as long."""
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
