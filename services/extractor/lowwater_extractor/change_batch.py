"""The changes of a transaction as the publisher reads them, in the three forms that sources have them.

`FrameList`: a list of frames. `FrameBuffer`: frames in one buffer, without a Python object for each. `IteratedChanges`:
frames that are decoded, or read from disk, while they are iterated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from itertools import islice

from lowwater_extractor._native.frames import Frames
from lowwater_extractor._native.slab import Slab
from lowwater_extractor.api import ChangeCursor, Frame


class FrameList:
    __slots__ = ("_frames",)

    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    def cursor(self, start: int, most: int) -> ChangeCursor:
        return _ListCursor(self._frames, start, most)


class _ListCursor:
    __slots__ = ("_at", "_frames", "_most", "is_at_end")

    def __init__(self, frames: list[Frame], start: int, most: int) -> None:
        self._frames = frames
        self._at = start
        self._most = most
        self.is_at_end = start >= len(frames)

    def add_to(self, slab: Slab, key: bytes, seq: int) -> int:
        taken = slab.add_changes(key, self._frames, self._at, self._most, seq)
        self._at += taken
        self.is_at_end = self._at == len(self._frames)
        return taken

    def take(self) -> Frame:
        frame = self._frames[self._at]
        self._at += 1
        self.is_at_end = self._at == len(self._frames)
        return frame


class FrameBuffer:
    __slots__ = ("_frames",)

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[Frame]:
        return iter(self._frames)

    def cursor(self, start: int, most: int) -> ChangeCursor:
        return _BufferCursor(self._frames, start, most)


class _BufferCursor:
    __slots__ = ("_at", "_frames", "_left", "_most", "is_at_end")

    def __init__(self, frames: Frames, start: int, most: int) -> None:
        self._frames = frames
        self._at = 0
        # `after` does not check its argument
        for _ in range(min(start, len(frames))):
            self._at = frames.after(self._at)
        self._left = len(frames) - start
        self._most = most
        self.is_at_end = self._left <= 0

    def add_to(self, slab: Slab, key: bytes, seq: int) -> int:
        before = slab.count
        self._at = slab.add_frames(key, self._frames, self._at, self._most, seq)
        return self._moved(slab.count - before)

    def take(self) -> Frame:
        frame = self._frames.frame(self._at)
        self._at = self._frames.after(self._at)
        self._moved(1)
        return frame

    def _moved(self, count: int) -> int:
        self._left -= count
        self.is_at_end = self._left == 0
        return count


class IteratedChanges(ABC):
    """A batch that can only be iterated."""

    __slots__ = ()

    @abstractmethod
    def __iter__(self) -> Iterator[Frame]: ...

    def cursor(self, start: int, most: int) -> ChangeCursor:
        return _IteratorCursor(islice(iter(self), start, None), most)


class _IteratorCursor:
    __slots__ = ("_at", "_frames", "_most", "_next", "is_at_end")

    def __init__(self, frames: Iterator[Frame], most: int) -> None:
        self._frames = frames
        self._most = most
        self._next: list[Frame] = []
        self._at = 0
        self.is_at_end = False
        self._moved(0)

    def add_to(self, slab: Slab, key: bytes, seq: int) -> int:
        self._next += islice(self._frames, self._most - len(self._next) + self._at)
        taken = slab.add_changes(key, self._next, self._at, self._most, seq)
        self._moved(taken)
        return taken

    def take(self) -> Frame:
        frame = self._next[self._at]
        self._moved(1)
        return frame

    def _moved(self, count: int) -> None:
        self._at += count
        if self._at == len(self._next):
            # only one is decoded ahead, so that the end is known: what was added is committed before the others
            self._next, self._at = list(islice(self._frames, 1)), 0
            self.is_at_end = not self._next
