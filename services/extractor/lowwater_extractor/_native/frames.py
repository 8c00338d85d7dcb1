# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""The changes of one transaction in one buffer, without a Python object for each of them.

A frame is the header of a schema and the body after `seq`. In the buffer each frame is its size, header and body. This
is plain Python that Cython compiles with the C types of `frames.pxd`; `row_bytes` fills it, `Slab` reads it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: bytes of the size field before each frame, and of the header
SIZE_BYTES: Final = 4
HEADER_BYTES: Final = 5
#: initial size of the buffer: small, because many small transactions may be open
_FIRST_BYTES: Final = 160
_GROWN_BYTES_MAX: Final = 1 << 22


class Frames:
    def __init__(self) -> None:
        self._memory = bytearray(_FIRST_BYTES)
        #: offset of the next frame
        self._end = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        at = 0
        while at < self._end:
            yield self.frame(at)
            at = self.after(at)

    def append(self, frame: tuple[bytes, bytes]) -> None:
        header, body = frame
        self.put(header, body, len(body))

    def put(self, header: bytes, body: bytes | bytearray, size: int) -> int:
        """Append a frame whose body is the first `size` bytes of `body`; returns the number of frames."""
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
        # a new buffer, so that the memory of a large one is freed
        self._memory = bytearray(_FIRST_BYTES)
        self._end = 0
        self._count = 0

    def _grow(self, more: int) -> None:
        # doubled each time, so that little is copied; up to a limit, so that little is unused
        self._memory.extend(bytes(max(min(len(self._memory), _GROWN_BYTES_MAX), more)))

    def after(self, at: int) -> int:
        """Return the offset after the frame that begins at offset `at`."""
        size = 0
        for place in range(SIZE_BYTES):
            size |= self._memory[at + place] << 8 * place
        return at + SIZE_BYTES + size

    def frame(self, at: int) -> tuple[bytes, bytes]:
        body = at + SIZE_BYTES + HEADER_BYTES
        return bytes(self._memory[at + SIZE_BYTES : body]), bytes(self._memory[body : self.after(at)])
