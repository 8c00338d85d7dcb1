"""Disk space for transactions that are too large for memory.

Each stream has its own directory (`lowwater.runtime.scratch`). Segments are published after they are read back, so each
is verified against a checksum that is kept in memory.
"""

from __future__ import annotations

import marshal
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from lowwater.records.wire import HEADER_SIZE
from lowwater.runtime.scratch import Scratch, damaged, disk_errors
from lowwater_extractor.api import Frame
from lowwater_extractor.change_batch import IteratedChanges
from lowwater_extractor.metrics import SPILL_BYTES, SPILLED_BYTES

#: rows, and a number for each if the source needs one
Segment = tuple[list[bytes], list[int]]

#: default limit of memory for open transactions; larger ones are spilled
MEMORY_BYTES_MAX = 64 << 20
#: memory that a row needs in addition to its bytes: two objects, and their entries in two lists
ROW_OVERHEAD = 100
#: a segment is read back as a whole, into Python objects
SEGMENT_BYTES = 8 << 20

_PREFIX = "lowwater-spill"


class SpillSpace:
    def __init__(self, parent: Path | None = None) -> None:
        self._parent = Path(parent) if parent is not None else Path(tempfile.gettempdir())
        self._scratch: Scratch | None = None
        self._made = 0

    def file(self) -> SpillFile:
        if self._scratch is None:
            self._scratch = Scratch(self._parent, _PREFIX)
        self._made += 1
        return SpillFile(self._scratch.path / f"{self._made}.spill")

    def close(self) -> None:
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None


def _forget(path: Path, ends: list[int]) -> None:
    path.unlink(missing_ok=True)
    SPILL_BYTES.dec(ends[-1])


class SpillFile:
    """A file of segments of one transaction. Segments are appended; the last one can be removed again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ends: list[int] = [0]
        self._checksums: list[int] = []
        self.rows = 0
        self.bytes = 0
        # the transaction may be published long after the assembler has dropped its reference
        weakref.finalize(self, _forget, path, self._ends)

    def append(self, segment: Segment) -> None:
        packed = marshal.dumps(segment)
        with disk_errors(self._path), self._path.open("ab") as file:
            file.write(packed)
        self._ends.append(self._ends[-1] + len(packed))
        self._checksums.append(crc32(packed))
        SPILL_BYTES.inc(len(packed))
        SPILLED_BYTES.inc(len(packed))
        self.rows += len(segment[0])
        self.bytes += sum(map(len, segment[0]))

    def take_back(self) -> Segment:
        """Remove the last segment and return it."""
        segment = self._read(len(self._ends) - 2)
        SPILL_BYTES.dec(self._ends.pop() - self._ends[-1])
        self._checksums.pop()
        with disk_errors(self._path):
            os.truncate(self._path, self._ends[-1])
        self.rows -= len(segment[0])
        self.bytes -= sum(map(len, segment[0]))
        return segment

    def __iter__(self) -> Iterator[Segment]:
        for number in range(len(self._ends) - 1):
            yield self._read(number)

    def _read(self, number: int) -> Segment:
        start, end = self._ends[number], self._ends[number + 1]
        with disk_errors(self._path), self._path.open("rb") as file:
            file.seek(start)
            packed = file.read(end - start)
        if len(packed) != end - start or crc32(packed) != self._checksums[number]:
            raise damaged(self._path, f"the segment at offset {start} does not match its checksum")
        segment: Segment = marshal.loads(packed)
        return segment


class Rows:
    """Rows in the order in which they were added; in memory up to a limit, then on disk."""

    def __init__(self, space: SpillSpace, bytes_max: int) -> None:
        self._space = space
        #: maximum size in memory, including `ROW_OVERHEAD`
        self._held_max = bytes_max
        self._rows: list[bytes] = []
        self._numbers: list[int] = []
        self._held = 0
        self._file: SpillFile | None = None
        self.bytes = 0
        self.count = 0

    def add(self, row: bytes, number: int) -> None:
        self._rows.append(row)
        self._numbers.append(number)
        self._held += len(row) + ROW_OVERHEAD
        self.bytes += len(row)
        self.count += 1
        if self._held > self._held_max:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._space.file()
            # the first rows are on disk: later ones need not be buffered in memory for long
            self._held_max = min(self._held_max, SEGMENT_BYTES)
        step = max(1, len(self._rows) * SEGMENT_BYTES // self._held)
        for start in range(0, len(self._rows), step):
            self._file.append((self._rows[start : start + step], self._numbers[start : start + step]))
        self._rows, self._numbers, self._held = [], [], 0

    def __iter__(self) -> Iterator[Segment]:
        if self._file is not None:
            yield from self._file
        if self._rows:
            yield self._rows, self._numbers


class SpilledFrames(IteratedChanges):
    """The frames of rows that are whole frames: header of the schema and body after `seq`, concatenated."""

    def __init__(self, rows: Rows, tick: Callable[[], None]) -> None:
        self._rows = rows
        self._tick = tick

    def __iter__(self) -> Iterator[Frame]:
        for rows, _ in self._rows:
            self._tick()
            for row in rows:
                yield row[:HEADER_SIZE], row[HEADER_SIZE:]
