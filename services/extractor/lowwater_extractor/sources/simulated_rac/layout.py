"""The names in a cluster's directory, and what its control file says.

online/thread_<t>_group_<g>.log   written in place; a group is reused round-robin, so overwritten
archive/thread_<t>_seq_<n>.log    a copy, made at the log switch
control.json                      what the database says about itself, replaced by rename
dictionary.json                   its tables, replaced by rename before a new one gets its first row
acknowledged.json                 the extractor's word: the first log of each thread that it still needs
history.jsonl                     what was committed, for a checker
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
    """As V$THREAD would say it."""

    thread: int
    state: str
    sequence: int
    #: end of the last LWN that was written whole
    offset: int
    #: the SCN from which on the thread is there, and that of its last opening
    enabled_scn: int
    opened_scn: int


class OpenTransaction(NamedTuple):
    """As GV$TRANSACTION would say it, for each thread that holds records of it: the SCN of the first one."""

    xid: int
    thread: int
    scn: int


def replace_file(path: Path, content: bytes) -> None:
    """Readers see the old or the new content, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.rename(path)
