"""The files in a cluster's directory, and the entries of its control file.

online/thread_<t>_group_<g>.log   written in place; groups are overwritten round-robin
archive/thread_<t>_seq_<n>.log    a copy, made at the log switch
control.json                      the state of the database, replaced by rename
dictionary.json                   its tables, replaced by rename before a new table gets its first row
acknowledged.json                 written by the extractor: the first log of each thread that it still needs
history.jsonl                     the committed transactions, for a checker
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Layout:
    root: Path

    @property
    def control(self) -> Path:
        return self.root / "control.json"

    @property
    def dictionary(self) -> Path:
        return self.root / "dictionary.json"

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


class ThreadInfo(NamedTuple):
    """The state of a thread, as in V$THREAD."""

    thread: int
    state: str
    sequence: int
    #: end of the last complete LWN
    offset: int
    #: the SCN at which the thread was enabled, and the SCN of its last opening
    enabled_scn: int
    opened_scn: int


class OpenTransaction(NamedTuple):
    """An open transaction, as in GV$TRANSACTION: for each thread with records of it, the SCN of the first record."""

    xid: int
    thread: int
    scn: int


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically: readers see the old or the new content."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)
