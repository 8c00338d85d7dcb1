# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""The changes of one transaction, one behind the other in memory: no tuple and no bytes of Python's for each of them.

A frame is the header of a schema, and what comes behind `seq`. Here each is its size, header and body. Plain Python,
which Cython compiles with the C types of `frames.pxd`; `row_bytes` fills it, a `Slab` takes from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: of each frame: its size in front of it, and of that its header
SIZE_BYTES: Final = 4
HEADER_BYTES: Final = 5
#: of a transaction with few changes, of which there may be many
_FIRST_BYTES: Final = 160
_GROWN_BYTES_MAX: Final = 1 << 22


class Frames:
    def __init__(self) -> None:
        self._memory = bytearray(_FIRST_BYTES)
        #: where the next one goes
        self._end = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        at = 0
        while at < self._end:
            yield self.frame(at)
            at = self.behind(at)

    def append(self, frame: tuple[bytes, bytes]) -> None:
        header, body = frame
        self.put(header, body, len(body))

    def put(self, header: bytes, body: bytes | bytearray, size: int) -> int:
        """A frame whose body are the first bytes of something larger; how many there are now."""
        if len(header) != HEADER_BYTES:
            raise ValueError("a header of another size")
        at = self._end
        whole = HEADER_BYTES + size
        if SIZE_BYTES + whole > len(self._memory) - at:
            self._grow(SIZE_BYTES + whole)
        for place in range(SIZE_BYTES):
            self._memory[at + place] = whole >> 8 * place & 255
        at += SIZE_BYTES
        for place in range(HEADER_BYTES):
            self._memory[at + place] = header[place]
        at += HEADER_BYTES
        for place in range(size):
            self._memory[at + place] = body[place]
        self._end = at + size
        self._count += 1
        return self._count

    def clear(self) -> None:
        # what was large goes back: others have waited for it
        self._memory = bytearray(_FIRST_BYTES)
        self._end = 0
        self._count = 0

    def _grow(self, more: int) -> None:
        # twice as much each time, so that little is moved, up to a limit, so that little is left empty
        self._memory.extend(bytes(max(min(len(self._memory), _GROWN_BYTES_MAX), more)))

    def behind(self, at: int) -> int:
        """The place behind the frame at this one, which begins there."""
        size = 0
        for place in range(SIZE_BYTES):
            size |= self._memory[at + place] << 8 * place
        return at + SIZE_BYTES + size

    def frame(self, at: int) -> tuple[bytes, bytes]:
        body = at + SIZE_BYTES + HEADER_BYTES
        return bytes(self._memory[at + SIZE_BYTES : body]), bytes(self._memory[body : self.behind(at)])
