"""Events of the binary log, written by hand: what a server would send, byte by byte."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.conformance.kit import PastTransaction, read
from tests.support.versions import Versions

from lowwater_extractor.modes import is_wanted
from lowwater_extractor.sources.mysql.assembler import Assembler
from lowwater_extractor.sources.mysql.position import Place, Resume
from lowwater_extractor.sources.mysql.relations import RelationMaker
from lowwater_extractor.sources.mysql.types import Wanted
from lowwater_extractor.sources.mysql.wire import events as ev
from lowwater_extractor.sources.mysql.wire import table_map as tm
from lowwater_extractor.sources.mysql.wire.charsets import Decoders
from lowwater_extractor.sources.mysql.wire.table_map import TableMap, WireColumn
from lowwater_extractor.spill import SpillSpace

SERVER = uuid.UUID("3e11fa47-71ca-11e1-9e33-c80aa9429562")
SECONDS = 1_700_000_000
UTF8MB4 = 45


def packed(n: int) -> bytes:
    return bytes([n]) if n < 251 else b"\xfc" + n.to_bytes(2, "little")


class Log:
    """One file; every event knows where it ends."""

    def __init__(self, file: str = "binlog.000001", *, checksums: bool = True, at: int = 4) -> None:
        self.file = file
        self.checksums = checksums
        self.at = at
        self.events: list[bytes] = []
        self._number = 0

    def event(self, kind: int, body: bytes, *, flags: int = 0, seconds: int = SECONDS, moves: bool = True) -> bytes:
        size = ev.HEADER + len(body) + (4 if self.checksums or kind == ev.FORMAT_DESCRIPTION else 0)
        self.at += size if moves else 0
        made = struct.pack("<IBIIIH", seconds, kind, 1, size, self.at & 0xFFFFFFFF if moves else 0, flags) + body
        if size > len(made):
            made += struct.pack("<I", zlib.crc32(made))
        self.events.append(made)
        return made

    def begin(self) -> None:
        """What every connection begins with."""
        self.rotate(artificial=True)
        self.format()

    def rotate(self, file: str = "", *, artificial: bool = False) -> None:
        name = file or self.file
        seconds, flags = (0, ev.ARTIFICIAL) if artificial else (SECONDS, 0)
        self.event(
            ev.ROTATE, struct.pack("<Q", self.at if artificial else 4) + name.encode(), flags=flags, seconds=seconds,
            moves=not artificial,
        )  # fmt: skip
        if not artificial:
            self.file, self.at = name, 4

    def format(self, *, seconds: int = SECONDS, version: str = "8.0.12") -> None:
        lengths = bytearray(42)
        lengths[tm_index(ev.TABLE_MAP)] = 8
        body = struct.pack("<H50sIB", 4, version.encode(), 0, ev.HEADER) + bytes(lengths) + bytes([self.checksums])
        self.event(ev.FORMAT_DESCRIPTION, body, seconds=seconds)

    def gtid(self, number: int | None = None, *, micros: int = SECONDS * 1_000_000) -> str:
        self._number = number or self._number + 1
        body = b"\x01" + SERVER.bytes + struct.pack("<qBqq", self._number, 2, 0, 0) + micros.to_bytes(7, "little")
        self.event(ev.GTID, body)
        return f"{SERVER}:{self._number}"

    def anonymous(self, micros: int = SECONDS * 1_000_000) -> None:
        self.event(ev.ANONYMOUS_GTID, b"\x01" + bytes(24) + struct.pack("<Bqq", 2, 0, 0) + micros.to_bytes(7, "little"))

    def maria_gtid(self, number: int, *, flags: int = 0, domain: int = 0) -> str:
        self.event(ev.MARIA_GTID, struct.pack("<QIB", number, domain, flags) + bytes(6))
        return f"{domain}-1-{number}"

    def query(self, text: str, namespace: str = "shop") -> bytes:
        names = namespace.encode()
        body = struct.pack("<IIBHH", 7, 0, len(names), 0, 0) + names + b"\x00" + text.encode()
        return self.event(ev.QUERY, body)

    def table(self, map_: bytes) -> None:
        self.event(ev.TABLE_MAP, map_)

    def rows(self, kind: int, number: int, columns: int, rows: bytes, *bitmaps: bytes) -> bytes:
        extra = struct.pack("<H", 2) if kind >= ev.WRITE_ROWS else b""
        present = bitmaps or (b"\xff" * ((columns + 7) // 8),) * (
            2 if kind in (ev.UPDATE_ROWS, ev.UPDATE_ROWS_1) else 1
        )
        body = number.to_bytes(6, "little") + b"\x01\x00" + extra + packed(columns) + b"".join(present) + rows
        return self.event(kind, body)

    def xid(self) -> None:
        self.event(ev.XID, struct.pack("<Q", 99))

    def prepare(self, name: bytes, *, one_phase: bool = False) -> None:
        self.event(ev.XA_PREPARE, struct.pack("<?iII", one_phase, 1, len(name), 0) + name)

    def take(self) -> list[bytes]:
        found, self.events = self.events, []
        return found


def tm_index(kind: int) -> int:
    return kind - 1


def row(*values: bytes | None) -> bytes:
    """Bits without a column are set, as servers do it."""
    bits = (1 << 8 * ((len(values) + 7) // 8)) - 1
    for place, value in enumerate(values):
        if value is not None:
            bits &= ~(1 << place)
    return bits.to_bytes((len(values) + 7) // 8, "little") + b"".join(v for v in values if v is not None)


def table_map(
    number: int, name: str, columns: Sequence[tuple[int, bytes]], *, names: Sequence[str] | None = None,
    unsigned: Sequence[int] = (), collations: Sequence[int] | None = None, key: Sequence[int] = (0,),
    labels: Sequence[tuple[int, Sequence[bytes]]] = (), namespace: str = "shop",
) -> bytes:  # fmt: skip
    """`columns`: type and metadata of each."""
    space, table = namespace.encode(), name.encode()
    metadata = b"".join(data for _, data in columns)
    body = number.to_bytes(6, "little") + b"\x01\x00"
    body += bytes([len(space)]) + space + b"\x00" + bytes([len(table)]) + table + b"\x00"
    body += packed(len(columns)) + bytes(kind for kind, _ in columns) + packed(len(metadata)) + metadata
    body += bytes((len(columns) + 7) // 8)
    numeric = [n for n, (kind, _) in enumerate(columns) if kind in (1, 2, 3, 4, 5, 8, 9, 246)]
    if numeric:
        bits = bytearray((len(numeric) + 7) // 8)
        for place, n in enumerate(numeric):
            if n in unsigned:
                bits[place >> 3] |= 128 >> (place & 7)
        body += _field(1, bytes(bits))
    if collations is not None:
        body += _field(3, b"".join(map(packed, collations)))
    if names is not None:
        body += _field(4, b"".join(packed(len(one.encode())) + one.encode() for one in names))
        body += _field(8, b"".join(map(packed, key)))
    for kind, texts in labels:
        body += _field(kind, packed(len(texts)) + b"".join(packed(len(text)) + text for text in texts))
    return body


def _field(kind: int, value: bytes) -> bytes:
    return bytes([kind]) + packed(len(value)) + value


class NoServer:
    """What is asked beside the log, without a server."""

    def __init__(self, *tables: TableMap, filled: Sequence[str] = ()) -> None:
        self._tables = {f"{t.namespace}.{t.table}": t for t in tables}
        self._filled = set(filled)

    def table(self, namespace: str, table: str) -> TableMap | None:
        return self._tables.get(f"{namespace}.{table}")

    def filled(self, namespace: str, table: str) -> set[str]:
        return self._filled

    def charset(self, collation: int) -> str:
        return {8: "latin1", 63: "binary", 13: "sjis", 35: "ucs2", 45: "utf8mb4", 99: "cp1250"}[collation]

    def letters(self, charset: str) -> list[str]:
        codec = {"latin1": "cp1252", "cp1250": "cp1250"}[charset]
        return [bytes([n]).decode(codec, errors="replace") for n in range(256)]


class Fed:
    """An assembler that is fed from a log, with everything that it has handed over."""

    def __init__(
        self, tmp_path: Path, *, resume: Resume | None = None, catalogue: NoServer | None = None,
        tables: Sequence[str] = ("shop.*",), wanted: Wanted | None = None, is_mariadb: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        self.encoders = Versions()
        asked = catalogue or NoServer()
        maker = RelationMaker(
            "s", asked, Decoders(asked), self.encoders, wanted or Wanted(), lambda name: is_wanted(tables, name)
        )
        start = resume or Resume(100, Place("binlog.000001", 4, ""), str(SERVER))
        space = SpillSpace(tmp_path)
        self.assembler = Assembler(
            "s", maker, space, options.pop("bytes_max", 1 << 20), start, is_mariadb=is_mariadb, **options
        )
        self.seen = maker.seen

    def feed(self, log: Log) -> list[PastTransaction]:
        self.assembler.feed_all(log.take())
        found, self.assembler.committed = self.assembler.committed, []
        return [read(transaction, self.encoders) for transaction in found]


def column(kind: int, size: int = 0, name: str = "", **more: Any) -> WireColumn:
    return WireColumn(kind, size, name=name, **more)


Make = Callable[[], Log]
ITEMS = table_map(
    70, "items", [(tm.LONG, b""), (tm.VARCHAR, b"\x50\x00")], names=["id", "name"], collations=[UTF8MB4]
)  # fmt: skip


def item(number: int, name: str | None) -> bytes:
    text = None if name is None else bytes([len(name.encode())]) + name.encode()
    return row(struct.pack("<i", number), text)
