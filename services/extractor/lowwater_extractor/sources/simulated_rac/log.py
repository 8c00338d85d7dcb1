"""The log files of the simulated cluster: their bytes, their names and the control file.

    online/thread_<t>_group_<g>.log   written in place; a group is reused round-robin, so overwritten
    archive/thread_<t>_seq_<n>.log    a copy, made at the log switch
    control.json                      what the database says about itself, replaced by rename

A log is one header block and then LWNs (log write numbers: what one write of the log writer put there).
An LWN is a header, an index of fixed-size entries (scn, xid, code, end of its data) and the data of all
records, so that a reader walks it with one `iter_unpack` and takes a row as one slice.

The SCN of an LWN is a lower bound of the SCNs in it and behind it; it is not a commit's SCN.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypedDict
from zlib import crc32

from lowwater.errors import LogCorruptError, SourceError

FILE_MAGIC = b"LWREDO01"
LWN_MAGIC = b"LWN\x01"
#: the header block; the first LWN begins behind it
BLOCK = 512
#: "next SCN" of a log that is still written
SCN_NONE = (1 << 64) - 1

_FILE = struct.Struct("<8sHHIQQQQQ")
_CRC = struct.Struct("<I")
#: magic, sequence, LWN SCN, time in µs, records, bytes of index and data
LWN_HEAD = struct.Struct("<4sIQQII")
LWN_HEAD_BYTES = LWN_HEAD.size + _CRC.size
#: one record: scn, xid, code, where its data ends (it begins where the one before ended)
ENTRY = struct.Struct("<QQII")

# Codes. Rows have the highest bit, so that a reader tells them by one comparison; the low 16 bits are the
# table's object number. For all others the low 16 bits are flags, or the thread whose change an undo cancels.
ROW = 0x8000_0000
ROW_INSERT = ROW | 0x02 << 16
ROW_DELETE = ROW | 0x03 << 16
ROW_UPDATE = ROW | 0x05 << 16
BEGIN = 0x52 << 16
COMMIT = 0x54 << 16
ROLLBACK = 0x55 << 16
#: cancels the newest change of its transaction that the named thread wrote (Oracle's 5.6 and 5.11)
UNDO = 0x56 << 16
PREPARE = 0x57 << 16
OPERATION = 0xFFFF_0000
ARGUMENT = 0xFFFF

#: flags of BEGIN
FLAG_SYSTEM = 1
FLAG_XA = 2
#: flag of COMMIT and ROLLBACK: the data names the threads that hold records of the transaction
FLAG_CROSS = 4

OPERATIONS = {ROW_INSERT: "c", ROW_DELETE: "d", ROW_UPDATE: "u"}
#: the data of COMMIT and ROLLBACK: time in µs, then with FLAG_CROSS the threads as unsigned 16 bit
TIME = struct.Struct("<Q")

_CLOSED = 1


class Place(NamedTuple):
    """A place in a thread: a record's data offset inside the LWN at `offset` of log `sequence`."""

    sequence: int
    offset: int
    record: int = 0

    def __str__(self) -> str:
        return f"sequence {self.sequence} offset {self.offset} record {self.record}"


class Where(TypedDict):
    """The place that an error names."""

    source: str
    thread: int
    position: str


class FileHeader(NamedTuple):
    thread: int
    sequence: int
    database: int
    resetlogs: int
    first_scn: int
    #: the first SCN of the next log; `SCN_NONE` while this one is written
    next_scn: int
    #: where the last LWN ends; 0 while this log is written. What lies behind it was never written whole
    end: int

    @property
    def closed(self) -> bool:
        return self.end != 0


def pack_header(head: FileHeader) -> bytes:
    body = _FILE.pack(
        FILE_MAGIC,
        head.thread,
        _CLOSED if head.closed else 0,
        head.sequence,
        head.database,
        head.resetlogs,
        head.first_scn,
        head.next_scn,
        head.end,
    )
    return (body + _CRC.pack(crc32(body))).ljust(BLOCK, b"\0")


def unpack_header(block: bytes) -> FileHeader | None:
    """None if the block is short or does not check: half written, or not a log at all."""
    size = _FILE.size
    if len(block) < BLOCK or block[:8] != FILE_MAGIC:
        return None
    if _CRC.unpack_from(block, size)[0] != crc32(block[:size]):
        return None
    _, thread, _, sequence, database, resetlogs, first, after, end = _FILE.unpack_from(block)
    return FileHeader(thread, sequence, database, resetlogs, first, after, end)


def pack_lwn(sequence: int, scn: int, time_us: int, entries: bytes, data: bytes) -> bytes:
    count = len(entries) // ENTRY.size
    head = LWN_HEAD.pack(LWN_MAGIC, sequence, scn, time_us, count, len(entries) + len(data))
    return b"".join((head, _CRC.pack(crc32(data, crc32(entries, crc32(head)))), entries, data))


class Lwn(NamedTuple):
    """One LWN as read: the index is walked with `ENTRY.iter_unpack`, the data is sliced."""

    sequence: int
    offset: int
    scn: int
    time_us: int
    records: int
    entries: bytes
    data: bytes


class LwnDamage(NamedTuple):
    """Why there is no LWN here: nothing written yet, half of it, or damage. The log's state decides which."""

    why: str
    #: bytes that a reader needs to look at to see the whole of it
    wanted: int


def unpack_lwn(buffer: bytes, at: int, sequence: int, offset: int) -> Lwn | LwnDamage:
    """The LWN at `at` of `buffer`, which is at `offset` of the log."""
    start = at + LWN_HEAD_BYTES
    if len(buffer) < start:
        return LwnDamage("the LWN header is short", LWN_HEAD_BYTES)
    magic, in_sequence, scn, time_us, count, length = LWN_HEAD.unpack_from(buffer, at)
    if magic != LWN_MAGIC or in_sequence != sequence:
        # the rest of an earlier round in a reused group looks like this
        return LwnDamage("no LWN of this log here", LWN_HEAD_BYTES)
    split, end = start + count * ENTRY.size, start + length
    if len(buffer) < end or split > end:
        return LwnDamage("the LWN is shorter than its header says", end - at)
    (crc,) = _CRC.unpack_from(buffer, at + LWN_HEAD.size)
    if crc != crc32(memoryview(buffer)[start:end], crc32(buffer[at : at + LWN_HEAD.size])):
        return LwnDamage("the LWN's checksum is wrong", end - at)
    return Lwn(sequence, offset, scn, time_us, count, buffer[start:split], buffer[split:end])


# --- the control file: what V$DATABASE, V$THREAD and GV$TRANSACTION would say -----------------------------


class ThreadInfo(NamedTuple):
    thread: int
    state: str
    sequence: int
    #: end of the last LWN that was written whole
    offset: int
    #: the first log of this thread, and its first SCN
    first_sequence: int
    enabled_scn: int
    opened_scn: int


class OpenTransaction(NamedTuple):
    """An open transaction's first record in one thread; one that is in several threads has several entries."""

    xid: int
    thread: int
    sequence: int
    offset: int
    scn: int


@dataclass(slots=True)
class Control:
    database: int
    resetlogs: int
    current_scn: int
    groups: int
    threads: dict[int, ThreadInfo] = field(default_factory=dict)
    open: list[OpenTransaction] = field(default_factory=list)
    #: object number → table, as rows.table_to_json writes it
    tables: dict[int, dict[str, Any]] = field(default_factory=dict)

    @property
    def incarnation(self) -> str:
        return f"{self.database}.{self.resetlogs}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The names in a cluster's directory."""

    root: Path

    @property
    def control(self) -> Path:
        return self.root / "control.json"

    @property
    def acknowledged(self) -> Path:
        return self.root / "acknowledged.json"

    @property
    def history(self) -> Path:
        return self.root / "history.jsonl"

    @property
    def commands(self) -> Path:
        return self.root / "commands"

    def online(self, thread: int, group: int) -> Path:
        return self.root / "online" / f"thread_{thread}_group_{group}.log"

    def archive(self, thread: int, sequence: int) -> Path:
        return self.root / "archive" / f"thread_{thread}_seq_{sequence}.log"


def replace_file(path: Path, content: bytes) -> None:
    """Readers see the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)


def write_control(layout: Layout, control: Control) -> None:
    raw = {
        "database": control.database,
        "resetlogs": control.resetlogs,
        "current_scn": control.current_scn,
        "groups": control.groups,
        "threads": {number: info._asdict() for number, info in control.threads.items()},
        "open": [entry._asdict() for entry in control.open],
        "tables": control.tables,
    }
    replace_file(layout.control, json.dumps(raw).encode())


def read_control(layout: Layout) -> Control:
    try:
        raw = json.loads(layout.control.read_bytes())
    except FileNotFoundError as error:
        raise SourceError(
            f"no simulated cluster in {layout.root}: {layout.control.name} is missing",
            hint="start one: python -m lowwater_extractor.sources.simulated_rac --directory …",
        ) from error
    except ValueError as error:
        raise LogCorruptError(f"{layout.control} is not JSON: {error}") from error
    return Control(
        database=raw["database"],
        resetlogs=raw["resetlogs"],
        current_scn=raw["current_scn"],
        groups=raw["groups"],
        threads={int(number): ThreadInfo(**info) for number, info in raw["threads"].items()},
        open=[OpenTransaction(**entry) for entry in raw["open"]],
        tables={int(number): table for number, table in raw["tables"].items()},
    )
