"""What capture reads of a database, from views or from files: its threads, open transactions and logs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.files import LogFiles
from lowwater_extractor.sources.oracle.scn import Scn


class Thread(NamedTuple):
    number: int
    state: ThreadState
    is_enabled: bool
    #: of the log that is being written, or was written last
    sequence: int
    #: redo of this thread begins here
    enabled_scn: Scn
    #: the last SCN that the log writer has written: later records have this SCN or a higher one
    last_scn: Scn
    instance: str


class ThreadSnapshot(NamedTuple):
    """The threads, and the SCN that was current before they were queried."""

    scn: Scn
    threads: dict[int, Thread]


class OpenTransaction(NamedTuple):
    #: 0: unknown
    thread: int
    usn: int
    slot: int
    sequence: int
    #: 0: unknown
    start_scn: Scn
    container: int

    @property
    def xid(self) -> int:
        return xid_of(self.container, self.usn, self.slot, self.sequence)


class Start(NamedTuple):
    """Where a new capture begins."""

    #: the log is read from here on
    first_scn: Scn
    #: commits above this are captured
    since: Scn
    #: transactions that may still commit
    open: list[OpenTransaction]
    #: the xids of transactions that can only be rolled back: they are not captured
    dead: Sequence[int] = ()


def xid_of(container: int, usn: int, slot: int, sequence: int) -> int:
    """The xid as one number. It includes the container, because undo segments are numbered per container."""
    return container << 64 | usn << 48 | slot << 32 | sequence


def without_container(xid: int) -> int:
    return xid & (1 << 64) - 1


def txid_text(xid: int) -> str:
    """The text in LogMiner's XID column on little-endian machines: usn, slot and sequence, lowest byte first."""
    usn, slot, sequence = xid >> 48 & 0xFFFF, xid >> 32 & 0xFFFF, xid & 0xFFFF_FFFF
    return (usn.to_bytes(2, "little") + slot.to_bytes(2, "little") + sequence.to_bytes(4, "little")).hex()


class RedoView(Protocol):
    """The database as redo capture reads it: by queries, by files, or simulated."""

    #: the redo files; their headers must have `identity`
    files: LogFiles
    identity: Identity

    def incarnation(self) -> str: ...

    def look(self) -> ThreadSnapshot:
        """Read the current SCN, and after it the threads."""
        ...

    def start(self) -> Start:
        """Where capture has to begin so that every transaction that commits above `since` is complete."""
        ...
