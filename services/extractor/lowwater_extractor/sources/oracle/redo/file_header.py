"""The two header blocks of a log: the file header (block 0) and the log header (block 1)."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from lowwater.errors import IncarnationError, LogCorruptError, LogGapError, LogUnknownError, SourceError
from lowwater_extractor.sources.oracle.redo.blocks import find_bad, fold, rows
from lowwater_extractor.sources.oracle.redo.layout import (
    FIRST_BLOCK,
    MAGIC_BIG,
    MAGIC_LITTLE,
    NAB_OPEN,
    SCN_NONE,
    SIZE_CLASS,
    VERSION_MIN,
    Format,
    Where,
    unpack_scn,
    version_text,
)
from lowwater_extractor.sources.oracle.scn import Scn

#: both blocks, of any block size
HEADER_BYTES = 2 * 4096

_FILE_TYPE_LOG = 2

#: block 1 from byte 20: version, database id, name, control sequence, blocks, block size, group, type, activation
_IDENTITY = {order: Struct(f"{order}II8sIIIHHI") for order in "<>"}
_U32 = {order: Struct(f"{order}I") for order in "<>"}
_U16 = {order: Struct(f"{order}H") for order in "<>"}


class Identity(NamedTuple):
    """The database that a log belongs to, in one of its incarnations."""

    database: int
    resetlogs: int

    def __str__(self) -> str:
        return f"{self.database}.{self.resetlogs}"


class LogHeader(NamedTuple):
    form: Format
    #: blocks of the file as block 0 counts them, block 0 included
    file_blocks: int
    database: int
    name: str
    activation: int
    group: int
    thread: int
    sequence: int
    resetlogs: int
    resetlogs_scn: Scn
    previous_resetlogs: int
    first_scn: Scn
    #: the first SCN of the next log; `SCN_NONE` while this log is written
    next_scn: Scn
    #: as stored: see `layout.unpack_time`
    first_time: int
    next_time: int
    #: blocks in use, block 0 included; `NAB_OPEN` while this log is written
    used_blocks: int
    #: the last log of its thread, which was then disabled or closed
    end_of_thread: bool
    #: blocks of the largest LWN in it; 0 while this log is written
    largest_lwn: int
    flags: int

    @property
    def closed(self) -> bool:
        return self.next_scn != SCN_NONE and self.used_blocks != NAB_OPEN

    @property
    def identity(self) -> Identity:
        return Identity(self.database, self.resetlogs)

    @property
    def first_offset(self) -> int:
        """Where redo begins."""
        return FIRST_BLOCK * self.form.block_size

    @property
    def end(self) -> int:
        """Where redo ends; 0 while this log is written."""
        return self.used_blocks * self.form.block_size if self.closed else 0


class NoHeader(NamedTuple):
    """Why these bytes are not a log header. A header that is being rewritten can be invalid for an instant."""

    why: str


def unpack_header(data: bytes) -> LogHeader | NoHeader:
    """Unpack the first `HEADER_BYTES` of a file, or the whole file if it is shorter."""
    magic = data[28:32]
    if magic not in (MAGIC_LITTLE, MAGIC_BIG):
        return NoHeader(f"no redo log: {len(data)} bytes, {data[28:32].hex(' ') or 'nothing'} as magic number")
    order = "<" if magic == MAGIC_LITTLE else ">"
    block_size = _U32[order].unpack_from(data, 20)[0]
    if block_size not in SIZE_CLASS or data[:2] != bytes((0, SIZE_CLASS[block_size])):
        return NoHeader(f"a redo log of block size {block_size}, class {data[1]:#04x}: not a valid size")
    if len(data) < 2 * block_size:
        return NoHeader(f"cut short: {len(data)} bytes do not contain the two header blocks of {block_size}")
    form = Format(order, block_size)
    if fold(rows(data[:block_size], block_size))[0]:
        return NoHeader("block 0: its checksum is wrong")
    block = data[block_size : 2 * block_size]
    sequence = _U32[order].unpack_from(block, 8)[0]
    bad = find_bad(rows(block, block_size), 1, sequence, form)
    if bad is not None:
        return NoHeader(str(bad))
    return _unpack_log_header(block, form, 1 + int(_U32[order].unpack_from(data, 24)[0]))


def _unpack_log_header(block: bytes, form: Format, file_blocks: int) -> LogHeader | NoHeader:
    order = form.order
    u32 = _U32[order].unpack_from
    version, database, name, _, _, block_size, group, kind, activation = _IDENTITY[order].unpack_from(block, 20)
    if version == 0:
        return NoHeader("a log that was never used")
    if kind != _FILE_TYPE_LOG or block_size != form.block_size:
        return NoHeader(f"a file of type {kind} with blocks of {block_size}, not a redo log with {form.block_size}")
    return LogHeader(
        form=form._replace(version=version),
        file_blocks=file_blocks,
        database=database,
        name=name.rstrip(b"\0").decode("ascii", "replace"),
        activation=activation,
        group=group,
        thread=_U16[order].unpack_from(block, 176)[0],
        sequence=u32(block, 8)[0],
        resetlogs=u32(block, 160)[0],
        resetlogs_scn=unpack_scn(block, 164, order),
        previous_resetlogs=u32(block, 292)[0],
        first_scn=unpack_scn(block, 180, order),
        next_scn=unpack_scn(block, 192, order),
        first_time=u32(block, 188)[0],
        next_time=u32(block, 200)[0],
        used_blocks=u32(block, 156)[0],
        end_of_thread=bool(block[204]),
        largest_lwn=u32(block, 268)[0],
        flags=u32(block, 236)[0],
    )


def check_header(header: LogHeader, identity: Identity, thread: int, sequence: int, where: Where) -> None:
    """Raise an error if the header is not that of the expected log."""
    if header.identity != identity:
        raise IncarnationError(
            f"the log is of database {header.identity} ({header.name}), not of {identity}",
            hint="the database was restored or replaced: reset the source's position to start capture again",
            **where,
        )
    if (header.thread, header.sequence) != (thread, sequence):
        raise LogGapError(
            f"the file of log {sequence} of thread {thread} contains log {header.sequence} of thread {header.thread}",
            hint="restore the right log to the archive",
            **where,
        )
    if header.form.version < VERSION_MIN:
        raise LogUnknownError(
            f"the log is of version {version_text(header.form.version)}",
            hint="redo is read from version 12.1 on; capture this database with LogMiner",
            **where,
        )


def check_length(header: LogHeader, size: int, where: Where) -> None:
    """Raise LogCorruptError if the file is shorter than the blocks in use by its header."""
    if header.closed and size < header.end:
        raise cut_short(header, size, where)


def cut_short(header: LogHeader, size: int, where: Where) -> SourceError:
    return LogCorruptError(
        f"log {header.sequence} of thread {header.thread} is cut short: "
        f"{size} of {header.end} bytes ({header.used_blocks} blocks of {header.form.block_size})",
        hint="its copy is not finished, or damaged: copy the log again",
        **where,
    )
