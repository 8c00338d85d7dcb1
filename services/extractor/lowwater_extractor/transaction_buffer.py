"""The encoded changes of an open transaction: in memory up to a limit, then on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from lowwater_extractor._native.frames import Frames
from lowwater_extractor.api import ChangeBatch, Frame
from lowwater_extractor.change_batch import FrameBuffer, FrameList
from lowwater_extractor.spill import Rows, SpilledFrames, SpillSpace

F = TypeVar("F", list[Frame], Frames)
#: of each frame's header, which `grown` does not count
_HEADER_BYTES = 5


class TransactionBuffer(Generic[F]):
    """`frames`: those in memory. A source's hot loop appends to it directly, and then calls `grown`."""

    __slots__ = ("_bytes_max", "_large", "_size", "_space", "frames")

    def __init__(self, space: SpillSpace, bytes_max: int, frames: F) -> None:
        self._space = space
        self._bytes_max = bytes_max
        self.frames: F = frames
        #: bytes of the bodies in `frames`
        self._size = 0
        self._large: Rows | None = None

    @property
    def count(self) -> int:
        return len(self.frames) + (self._large.count if self._large is not None else 0)

    @property
    def bytes(self) -> int:
        large = self._large.bytes if self._large is not None else 0
        return self._size + _HEADER_BYTES * len(self.frames) + large

    def add(self, frame: Frame) -> None:
        self.frames.append(frame)
        self.grown(len(frame[1]))

    def grown(self, size: int) -> None:
        """Count bodies of `size` bytes that were appended to `frames`; above the limit all frames are spilled."""
        self._size += size
        if self._size > self._bytes_max:
            self._spill()

    def limit(self, bytes_max: int) -> None:
        """Set the limit for frames in memory; those that were spilled before keep their own buffer (`Rows`)."""
        self._bytes_max = bytes_max
        self.grown(0)

    def _spill(self) -> None:
        if self._large is None:
            self._large = Rows(self._space, self._bytes_max // 2)
        for header, body in self.frames:
            self._large.add(header + body, 0)
        self.frames.clear()
        self._size = 0

    def changes(self, tick: Callable[[], None] = lambda: None) -> ChangeBatch:
        """Return all changes; the buffer is not used any more. `tick` is called while spilled ones are read."""
        if self._large is not None:
            self._spill()
            return SpilledFrames(self._large, tick)
        frames = self.frames
        return FrameBuffer(frames) if isinstance(frames, Frames) else FrameList(frames)
