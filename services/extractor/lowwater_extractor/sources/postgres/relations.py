"""Converts relation messages to table versions with an encoder and generated code that reads their rows.

The server sends a relation message before the first change with a new set of columns, in the same transaction, so a
table version starts at the correct position. Properties that the message lacks (definitions of user-defined types,
array dimensions, the primary key of a table with REPLICA IDENTITY FULL) are queried from the catalogue.
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
#: raised by converters for text that is not valid for the type
_ERRORS = (CodecError, ValueError, ArithmeticError, IndexError)

#: limit of one wait: longer ones would delay status updates to the server
VISIBLE_SECONDS_MAX = 10.0

#: (message, offset of the tuple, output: indexes of unchanged TOAST columns) → values, offset after the tuple
ReadRow = Callable[[bytes, int, list[int]], tuple[list[Any], int]]


class Catalogue(Protocol):
    """Queries of the database's catalogue."""

    def type(self, oid: int) -> PgType: ...

    def is_visible(self, xid: int) -> bool:
        """Whether catalogue queries see the changes of this transaction."""
        ...

    def dimensions(self, relation: int) -> dict[str, int]:
        """Return the declared dimensions of array columns by name."""
        ...

    def primary_key(self, relation: int) -> tuple[str, ...]: ...


def _compile(converts: list[Convert], names: list[str], source: str, where: str, *, whole: bool) -> ReadRow:
    """Generate an unrolled row reader: a loop over the columns takes twice as long.

    `whole`: the row must have all values; an unchanged TOAST value raises LogUnknownError.
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
            f"a row of {where} that must be complete has no value for {names[place]}: the log has it as unchanged",
            source=source,
            thread=1,
            hint="report it with the server's version; nothing after this was captured",
        )

    def explain(m: bytes, at: int, error: Exception) -> Exception:
        """Find the column that failed. The message does not contain the value."""
        at += 2
        for name, convert in zip(names, converts, strict=True):
            if m[at] != _TEXT:
                at += 1
                continue
            end = at + 5 + _SIZE(m, at + 1)[0]
            try:
                convert(m[at + 5 : end])
            except _ERRORS as cause:
                what = cause.what if isinstance(cause, CodecError) else "its text is not valid for its type"
                hint = (isinstance(cause, CodecError) and cause.hint) or "capture the column `as_text`, and report it"
                return CodecError(f"{where}.{name}: {what}", source=source, thread=1, hint=hint)
            at = end
        return error

    scope: dict[str, Any] = {"S": _SIZE, "wrong": wrong, "lacks": lacks, "explain": explain, "ERRORS": _ERRORS}
    scope |= {f"c{i}": c for i, c in enumerate(converts)}
    # the code is built from numbers only, never from names of tables or columns
    exec("\n".join(body), scope)
    read: ReadRow = scope["read"]
    return read


@dataclass(frozen=True, slots=True)
class Relation:
    """A table version with the readers and encoders of its changes."""

    table: TableSchema
    encoder: TableEncoder
    #: reads the new row of an update, which may omit unchanged TOAST values
    read: ReadRow
    #: reads all other rows
    read_whole: ReadRow
    header: bytes
    #: encodes the insert of a complete row
    encode_insert: WholeRow

    def insert(self, m: bytes, at: int, ts_us: int) -> Frame:
        """`at`: offset after the relation's oid."""
        row, _ = self.read_whole(m, at + 1, [])
        return self.encoder.header, self.encoder.insert(row, ts_us)

    def update(self, m: bytes, at: int, ts_us: int) -> Frame:
        before: list[Any] | None = None
        missing: list[int] = []
        # K: the old key, sent if it changed or is stored out of line; O: the complete old row
        if m[at] in (0x4B, 0x4F):
            before, at = self.read_whole(m, at + 1, [])
        after, _ = self.read(m, at + 1, missing)
        if not missing:
            return self.encoder.header, self.encoder.body("u", before, after, ts_us)
        if before is not None:
            for place in missing:
                after[place] = before[place]
            # a value that is still None here is not NULL but unknown: the old row may contain the key only, also for a
            # partition with less replica identity than its table
            missing = [place for place in missing if after[place] is None]
        names = [self.table.columns[place].name for place in missing]
        if any(name in self.table.key for name in names):
            raise LogUnknownError(
                f"an update of {self.table.full_name} without the value of its key ({', '.join(names)})",
                source=self.table.source,
                thread=1,
                hint="report it with the server's version; REPLICA IDENTITY FULL for the table avoids it",
            )
        return self.encoder.header, self.encoder.body("u", before, after, ts_us, names)

    def delete(self, m: bytes, at: int, ts_us: int) -> Frame:
        row, _ = self.read_whole(m, at + 1, [])
        return self.encoder.header, self.encoder.body("d", row, None, ts_us)

    def truncate(self, ts_us: int) -> Frame:
        return self.encoder.header, self.encoder.body("t", None, None, ts_us)


def wait_until_visible(catalogue: Catalogue, xid: int, source: str) -> None:
    """Wait until a decoded transaction is visible: with a synchronous standby it is decoded before it is visible.

    Raises SourceLostError after VISIBLE_SECONDS_MAX.
    """
    deadline = time.monotonic() + VISIBLE_SECONDS_MAX
    while not catalogue.is_visible(xid):
        if time.monotonic() > deadline:
            raise SourceLostError(
                f"transaction {xid} has committed, but its changes are not visible yet",
                source=source,
                hint="it waits for a synchronous standby: is the standby up? it is tried again",
            )
        time.sleep(0.02)


class RelationMaker:
    """Creates relations. `is_wanted` gets a table's full name: a publication may have more tables than the source."""

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
        #: last version by table
        self.seen: dict[str, TableSchema] = SeenVersions()

    def relation(self, message: RelationMessage, xid: int) -> Relation | None:
        """Return the relation for a message, None if the table is not captured. `xid`: the message's transaction.

        The server repeats messages after reconnects and cache invalidations, so most of them are already known.
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
            # this is the current key, but the change may be older: ignore a key with columns that did not exist yet
            return key if set(key) <= {column.name for column in message.columns} else ()
        return tuple(column.name for column in message.columns if column.is_key)
