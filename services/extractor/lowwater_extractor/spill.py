"""Disk space for transactions that are too large for memory.

A stream has a directory of its own with a lock on it. A directory whose lock is free belongs to a process
that was killed: the next stream removes it.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

#: rows, and a number for each where the source needs one
Segment = tuple[list[bytes], list[int]]

_PREFIX = "lowwater-spill-"
_LOCK = "lock"


class SpillSpace:
    def __init__(self, parent: Path | None = None) -> None:
        self._parent = Path(parent) if parent is not None else Path(tempfile.gettempdir())
        self._root: Path | None = None
        self._lock = -1
        self._made = 0

    def file(self) -> SpillFile:
        if self._root is None:
            self._root = self._make()
        self._made += 1
        return SpillFile(self._root / f"{self._made}.spill")

    def close(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            os.close(self._lock)
            self._root = None

    def _make(self) -> Path:
        self._parent.mkdir(parents=True, exist_ok=True)
        for left in self._parent.glob(f"{_PREFIX}*"):
            _remove_if_dead(left)
        root = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._parent))
        self._lock = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return root


def _remove_if_dead(root: Path) -> None:
    try:
        lock = os.open(root / _LOCK, os.O_RDWR)
    except FileNotFoundError:
        # just being made, or just being removed
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(root, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


class SpillFile:
    """Segments of one transaction, appended; the last one can be taken back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends: list[int] = [0]
        self.rows = 0
        self.bytes = 0
        # the transaction may be published long after the assembler has forgotten it
        weakref.finalize(self, path.unlink, missing_ok=True)

    def append(self, segment: Segment) -> None:
        packed = marshal.dumps(segment)
        with self._path.open("ab") as file:
            file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))
        self.rows += len(segment[0])
        self.bytes += sum(map(len, segment[0]))

    def take_back(self) -> Segment:
        """The last segment, which is then no longer here."""
        segment = self._read(len(self._ends) - 2)
        self._ends.pop()
        os.truncate(self._path, self._ends[-1])
        self.rows -= len(segment[0])
        self.bytes -= sum(map(len, segment[0]))
        return segment

    def __iter__(self) -> Iterator[Segment]:
        for number in range(len(self._ends) - 1):
            yield self._read(number)

    def _read(self, number: int) -> Segment:
        start, end = self._ends[number], self._ends[number + 1]
        with self._path.open("rb") as file:
            file.seek(start)
            # bytes that this process wrote to a directory of its own
            segment: Segment = marshal.loads(file.read(end - start))
        return segment
