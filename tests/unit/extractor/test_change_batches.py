"""`ChangeBatch`: all forms give the same changes by iteration and by cursor; what fails inside leaves nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater_extractor._native.frames import Frames
from lowwater_extractor._native.slab import Slab
from lowwater_extractor.api import ChangeBatch, Frame
from lowwater_extractor.change_batch import FrameBuffer, FrameList, IteratedChanges
from lowwater_extractor.spill import SpillSpace
from lowwater_extractor.transaction_buffer import TransactionBuffer

HEADER = b"\0\0\0\0\1"
ROOM = 3_000


class Iterated(IteratedChanges):
    def __init__(self, frames: list[Frame]) -> None:
        self._frames = frames

    def __iter__(self) -> Iterator[Frame]:
        yield from self._frames


def _buffer(frames: list[Frame]) -> FrameBuffer:
    made = Frames()
    for frame in frames:
        made.append(frame)
    return FrameBuffer(made)


FORMS = (FrameList, _buffer, Iterated)


def _values(batch: ChangeBatch, start: int, most: int) -> tuple[list[bytes], list[int]]:
    """All records that a cursor gives, and how many at a time."""
    slab, cursor = Slab(rows=16, room=ROOM), batch.cursor(start, most)
    found: list[bytes] = []
    steps: list[int] = []
    while not cursor.is_at_end:
        taken = cursor.add_to(slab, b"key", start + len(found) + 1)
        if taken:
            found += [message["value"] for message in slab.messages()][-taken:]
        elif slab.count:
            slab.clear()
            continue
        else:
            header, body = cursor.take()
            found.append(header + bytes([2 * (start + len(found) + 1)]) + body)
            taken = 1
        steps.append(taken)
    return found, steps


@given(
    sizes=st.lists(st.one_of(st.integers(0, 40), st.integers(ROOM - 30, ROOM + 30)), max_size=40),
    start=st.integers(0, 45),
    most=st.integers(1, 20),
)
def test_every_form_gives_the_same_changes(sizes: list[int], start: int, most: int) -> None:
    frames = [(HEADER, bytes([n]) * size) for n, size in enumerate(sizes)]
    wanted = [HEADER + bytes([2 * n]) + body for n, (_, body) in enumerate(frames, 1)][start:]
    for form in FORMS:
        batch = form(frames)
        assert list(batch) == list(batch) == frames
        # more than once
        for _ in range(2):
            found, steps = _values(batch, start, most)
            assert found == wanted
            assert not steps or max(steps) <= most


@pytest.mark.parametrize("new", [list, Frames])
@pytest.mark.parametrize("bytes_max", [0, 50, 1 << 20])
def test_buffer_gives_all_changes_whether_they_were_spilled_or_not(
    new: type[list[Frame]] | type[Frames], bytes_max: int, tmp_path: Path
) -> None:
    space = SpillSpace(tmp_path)
    buffer = TransactionBuffer(space, bytes_max, new())  # type: ignore[type-var]
    frames = [(HEADER, bytes([n]) * n) for n in range(30)]
    for header, body in frames[:10]:
        buffer.frames.append((header, body))
        buffer.grown(len(body))
    for frame in frames[10:]:
        buffer.add(frame)
    assert buffer.count == 30
    assert buffer.bytes == sum(len(header) + len(body) for header, body in frames)
    changes = buffer.changes()
    assert list(changes) == list(changes) == frames
    space.close()


def test_lower_limit_spills_what_is_in_memory(tmp_path: Path) -> None:
    space = SpillSpace(tmp_path)
    buffer = TransactionBuffer[list[Frame]](space, 1 << 20, [])
    buffer.add((HEADER, b"x" * 100))
    buffer.limit(99)
    assert buffer.frames == []
    assert (buffer.count, buffer.bytes) == (1, 105)
    assert list(buffer.changes()) == [(HEADER, b"x" * 100)]
    space.close()
