"""Relations as the stream names them: each is a table version with an encoder, and rows are read by code made for it.

A relation message comes before the first change of a new shape, in the transaction that has it: so a version begins
at the right place by itself. What the message does not say (what a user's own type is, how many dimensions an array
has, the key of a table whose identity is the full row) is asked of the catalogue.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from lowwater.codec.encoder import TableEncoder, WholeRow
from lowwater.codec.table import Column, TableSchema
from lowwater.errors import CodecError, LogUnknownError, SourceLostError
from lowwater_extractor.api import Encoders, Frame, SeenVersions
from lowwater_extractor.sources.postgres.types import PgType, column_type
from lowwater_extractor.sources.postgres.wire.messages import RelationMessage
from lowwater_extractor.sources.postgres.wire.text_values import Convert

_SIZE = struct.Struct(">I").unpack_from
_TEXT, _NULL, _UNCHANGED = b"tnu"
#: what reading a text that is not of its type can raise
_ERRORS = (CodecError, ValueError, ArithmeticError, IndexError)

#: so long at a time; the server must hear of us meanwhile
VISIBLE_SECONDS_MAX = 10.0

#: (message, place of the tuple, places of columns that the log did not carry) → values, place behind the tuple
ReadRow = Callable[[bytes, int, list[int]], tuple[list[Any], int]]


class Catalogue(Protocol):
    """What is asked beside the stream."""

    def type(self, oid: int) -> PgType: ...

    def is_visible(self, xid: int) -> bool:
        """Whether what is asked here knows of what this transaction has done."""
        ...

    def dimensions(self, relation: int) -> dict[str, int]:
        """Of its array columns."""
        ...

    def primary_key(self, relation: int) -> tuple[str, ...]: ...


def _compile(converts: list[Convert], names: list[str], source: str, where: str, *, whole: bool) -> ReadRow:
    """Unrolled: a loop with a look-up for each value takes twice as long.

    `whole`: a row in which nothing may be left out as unchanged.
    """
    lines = [
        f"    if m[p] << 8 | m[p + 1] != {len(converts)}:",
        "        raise wrong(m, p)",
        "    p += 2",
    ]
    for i, convert in enumerate(converts):
        value = "m[p + 5:e]" if convert is bytes else f"c{i}(m[p + 5:e])"
        lines += [
            f"    if m[p] == {_TEXT}:",
            "        e = p + 5 + S(m, p + 1)[0]",
            f"        v{i} = {value}",
            "        p = e",
            "    else:",
            f"        if m[p] == {_UNCHANGED}:",
            f"            {f'raise lacks({i})' if whole else f'u.append({i})'}",
            f"        elif m[p] != {_NULL}:",
            "            raise wrong(m, p)",
            f"        v{i} = None",
            "        p += 1",
        ]
    lines.append(f"    return [{', '.join(f'v{i}' for i in range(len(converts)))}], p")

    body = ["def read(m, p, u):", "    n = p", "    try:", *(f"    {line}" for line in lines)]
    body += ["    except ERRORS as error:", "        raise explain(m, n, error) from error"]

    def wrong(m: bytes, at: int) -> LogUnknownError:
        return LogUnknownError(
            f"a row of {where} does not fit its relation: {m[at : at + 32].hex(' ')}",
            source=source,
            thread=1,
            hint="report it with the server's version; nothing after this was captured",
        )

    def lacks(place: int) -> LogUnknownError:
        return LogUnknownError(
            f"a row of {where} that must be whole has no value of {names[place]}: the log says it is unchanged",
            source=source,
            thread=1,
            hint="report it with the server's version; nothing after this was captured",
        )

    def explain(m: bytes, at: int, error: Exception) -> Exception:
        """Which column it was: looked for only once it has gone wrong. The value stays out of the message."""
        at += 2
        for name, convert in zip(names, converts, strict=True):
            if m[at] != _TEXT:
                at += 1
                continue
            end = at + 5 + _SIZE(m, at + 1)[0]
            try:
                convert(m[at + 5 : end])
            except _ERRORS as cause:
                what = cause.what if isinstance(cause, CodecError) else "its text does not read as its type"
                hint = (isinstance(cause, CodecError) and cause.hint) or "capture the column `as_text`, and report it"
                return CodecError(f"{where}.{name}: {what}", source=source, thread=1, hint=hint)
            at = end
        return error

    scope: dict[str, Any] = {"S": _SIZE, "wrong": wrong, "lacks": lacks, "explain": explain, "ERRORS": _ERRORS}
    scope |= {f"c{i}": c for i, c in enumerate(converts)}
    # built from numbers only: no name of a table or column gets into it
    exec("\n".join(body), scope)
    read: ReadRow = scope["read"]
    return read


@dataclass(frozen=True, slots=True)
class Relation:
    """A table version that changes come for."""

    table: TableSchema
    encoder: TableEncoder
    #: of a new row in an update, which may lack what is unchanged
    read: ReadRow
    #: of all other rows
    read_whole: ReadRow
    header: bytes
    #: of a whole row
    encode_insert: WholeRow

    def insert(self, m: bytes, at: int, ts_us: int) -> Frame:
        """`at`: behind the relation's oid."""
        row, _ = self.read_whole(m, at + 1, [])
        return self.encoder.header, self.encoder.insert(row, ts_us)

    def update(self, m: bytes, at: int, ts_us: int) -> Frame:
        before: list[Any] | None = None
        missing: list[int] = []
        # K: the key as it was, where it changed or lies out of line; O: the whole row as it was
        if m[at] in (0x4B, 0x4F):
            before, at = self.read_whole(m, at + 1, [])
        after, _ = self.read(m, at + 1, missing)
        if not missing:
            return self.encoder.header, self.encoder.body("u", before, after, ts_us)
        if before is not None:
            for place in missing:
                after[place] = before[place]
            # what was left out is no null: the old row may be a key only, also of a partition with less identity than
            # its table
            missing = [place for place in missing if after[place] is None]
        names = [self.table.columns[place].name for place in missing]
        if any(name in self.table.key for name in names):
            raise LogUnknownError(
                f"an update of {self.table.full_name} without the value of its key ({', '.join(names)})",
                source=self.table.source,
                thread=1,
                hint="report it with the server's version; REPLICA IDENTITY FULL for the table has it written",
            )
        return self.encoder.header, self.encoder.body("u", before, after, ts_us, names)

    def delete(self, m: bytes, at: int, ts_us: int) -> Frame:
        row, _ = self.read_whole(m, at + 1, [])
        return self.encoder.header, self.encoder.body("d", row, None, ts_us)

    def truncate(self, ts_us: int) -> Frame:
        return self.encoder.header, self.encoder.body("t", None, None, ts_us)


def wait_until_visible(catalogue: Catalogue, xid: int, source: str) -> None:
    """With a synchronous standby a transaction is in the log before others see it."""
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while not catalogue.is_visible(xid):
        if time.monotonic() > deadline:
            raise SourceLostError(
                f"transaction {xid} has committed, but nobody can see yet what it did to a table",
                source=source,
                hint="it waits for a synchronous standby: is that up? it is tried again",
            )
        time.sleep(0.02)


class RelationMaker:
    """`is_wanted`: of a table's full name. A publication may have more than the source is to capture."""

    def __init__(
        self, source: str, catalogue: Catalogue, encoders: Encoders, as_text: frozenset[str],
        is_wanted: Callable[[str], bool] = lambda _name: True,
    ) -> None:  # fmt: skip
        self._source = source
        self._is_wanted = is_wanted
        self._catalogue = catalogue
        self._encoders = encoders
        self._as_text = as_text
        self._made: dict[RelationMessage, Relation] = {}
        #: each table's last version
        self.seen: dict[str, TableSchema] = SeenVersions()

    def relation(self, message: RelationMessage, xid: int) -> Relation | None:
        """The server sends a message again after every reconnect and invalidation: mostly it says nothing new.

        `xid`: the transaction that it came in. None: it is not to be captured.
        """
        if not self._is_wanted(f"{message.namespace}.{message.name}"):
            return None
        types = self._types(message)
        is_asked = message.identity == "f" or any(type_.item is not None or not type_.is_known for type_ in types)
        if is_asked and message not in self._made:
            wait_until_visible(self._catalogue, xid, self._source)
            types = self._types(message)
        has_arrays = any(type_.item is not None for type_ in types)
        if message.identity != "f" and not has_arrays and message in self._made:
            known = self._made[message]
            self.seen[known.table.full_name] = known.table
            return known
        dimensions = self._catalogue.dimensions(message.oid) if has_arrays else {}
        where = f"{message.namespace}.{message.name}"
        columns, converts = [], []
        for column, type_ in zip(message.columns, types, strict=True):
            as_text = f"{where}.{column.name}" in self._as_text
            found = column_type(type_, column.typmod, dimensions.get(column.name, 0), as_text=as_text)
            columns.append(Column(column.name, found.type))
            converts.append(found.convert)
        table = TableSchema(self._source, message.namespace, message.name, 0, tuple(columns), self._key(message))
        table = self._encoders.versioned(table)
        encoder = self._encoders.encoder(table)
        names = [column.name for column in columns]
        read = _compile(converts, names, self._source, where, whole=False)
        read_whole = _compile(converts, names, self._source, where, whole=True)
        relation = Relation(table, encoder, read, read_whole, encoder.header, encoder.insert)
        self._made[message] = relation
        self.seen[where] = table
        return relation

    def _types(self, message: RelationMessage) -> list[PgType]:
        return [self._catalogue.type(column.type_oid) for column in message.columns]

    def _key(self, message: RelationMessage) -> tuple[str, ...]:
        if message.identity == "f":
            key = self._catalogue.primary_key(message.oid)
            # asked now, of a change that may be old: a key of columns that were not there yet is none
            return key if set(key) <= {column.name for column in message.columns} else ()
        return tuple(column.name for column in message.columns if column.is_key)
