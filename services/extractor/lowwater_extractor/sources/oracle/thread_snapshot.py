"""What capture has to know of the database, whoever is asked: its threads, what is open, where its logs are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.files import LogFiles


class Thread(NamedTuple):
    number: int
    state: ThreadState
    is_enabled: bool
    #: of the log that is written, or was written last
    sequence: int
    #: redo of this thread begins here
    enabled_scn: int
    #: what the log writer wrote last: what it writes from now on has this SCN or a higher one
    last_scn: int
    instance: str


class Look(NamedTuple):
    """The threads, and the SCN that was current before they were asked for."""

    scn: int
    threads: dict[int, Thread]


class OpenTransaction(NamedTuple):
    #: 0: the database does not know
    thread: int
    usn: int
    slot: int
    sequence: int
    #: 0: the database does not know
    start_scn: int
    container: int

    @property
    def xid(self) -> int:
        return xid_of(self.container, self.usn, self.slot, self.sequence)


class Start(NamedTuple):
    """Where a fresh capture begins."""

    #: the log is read from here on
    first_scn: int
    #: commits above this are captured
    since: int
    #: what may still commit
    open: list[OpenTransaction]
    #: the xids of what can only be rolled back: nothing of it is captured, wherever it began
    dead: Sequence[int] = ()


def xid_of(container: int, usn: int, slot: int, sequence: int) -> int:
    """One number: undo segments are numbered per container."""
    return container << 64 | usn << 48 | slot << 32 | sequence


def without_container(xid: int) -> int:
    return xid & (1 << 64) - 1


def txid_text(xid: int) -> str:
    """As LogMiner's XID column shows it on little-endian machines: usn, slot and sequence, lowest byte first."""
    usn, slot, sequence = xid >> 48 & 0xFFFF, xid >> 32 & 0xFFFF, xid & 0xFFFF_FFFF
    return (usn.to_bytes(2, "little") + slot.to_bytes(2, "little") + sequence.to_bytes(4, "little")).hex()


class RedoView(Protocol):
    """What capture asks of the database, or of what stands for it."""

    #: which files there are; their headers must have `identity`
    files: LogFiles
    identity: Identity

    def incarnation(self) -> str: ...

    def look(self) -> Look:
        """The current SCN, and then the threads."""
        ...

    def start(self) -> Start:
        """Where capture has to begin so that every transaction that commits above `since` is whole."""
        ...
