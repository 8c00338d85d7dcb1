"""Messages side by side: the same keys, values, counts and sums as objects would have, in both forms."""

from __future__ import annotations

import ctypes
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from tests.support.plain_form import plain_form

from lowwater.codec.varint import long
from lowwater_extractor._native import frames as frames_module
from lowwater_extractor._native import slab
from lowwater_extractor.api import Frame

ROWS = slab.ROWS
PLAIN, PLAIN_FRAMES = plain_form(slab.__name__), plain_form(frames_module.__name__)
FORMS = pytest.mark.parametrize("form", [slab, PLAIN], ids=["compiled", "plain"])
HEADER = b"\0\0\0\x27\x10"

frames = st.lists(st.tuples(st.binary(max_size=9), st.binary(max_size=40)), max_size=20)


def test_it_is_compiled() -> None:
    """If not: `make setup` builds it."""
    assert str(slab.__file__).endswith(".so")
    assert str(frames_module.__file__).endswith(".so")


def _values(found: list[Frame], seq: int) -> list[bytes]:
    return [h + long(seq + number) + b for number, (h, b) in enumerate(found)]


@FORMS
@given(frames, frames, st.binary(max_size=60), st.integers(0, 2**40))
def test_changes_and_other_records_are_what_they_would_be_as_objects(
    form: ModuleType, first: list[Frame], second: list[Frame], key: bytes, seq: int
) -> None:
    made = form.Slab(50, 1 << 14)
    assert made.add_changes(key, first, 0, ROWS, seq) == len(first)
    assert made.add(b"another", b"commit")
    before = made.checksum
    assert made.add_changes(b"another", second, 0, ROWS, 1) == len(second)
    changes, others = _values(first, seq), _values(second, 1)
    expected = [(key, v) for v in changes] + [(b"another", v) for v in (b"commit", *others)]
    assert [(m["key"], m["value"]) for m in made.messages()] == expected
    assert (made.count, made.size) == (len(expected), sum(len(value) for _, value in expected))
    assert (before, made.checksum - before) == (sum(map(crc32, changes)), sum(map(crc32, others)))
    made.clear()
    assert (made.count, made.size, made.checksum, made.messages()) == (0, 0, 0, [])


@FORMS
@given(st.lists(st.integers(0, 70), max_size=30), st.integers(1, 12), st.integers(0, 300), st.integers(0, 20))
def test_what_has_no_room_waits_for_the_next_slab(
    form: ModuleType, sizes: list[int], rows: int, room: int, key_size: int
) -> None:
    found = [(HEADER, bytes([number]) * size) for number, size in enumerate(sizes)]
    made = form.Slab(rows, room)
    sent: list[bytes] = []
    done = 0
    while done < len(found):
        taken = made.add_changes(b"k" * key_size, found, done, ROWS, 1 + done)
        done += taken
        assert made.count <= rows
        if not taken and not made.count:
            # it would fit no slab
            assert key_size + len(HEADER) + sizes[done] + 10 > room
            sent.append(HEADER + long(1 + done) + found[done][1])
            done += 1
        elif done < len(found):
            sent += [message["value"] for message in made.messages()]
            made.clear()
    sent += [message["value"] for message in made.messages()]
    assert sent == _values(found, 1)


@FORMS
def test_another_record_has_room_or_not(form: ModuleType) -> None:
    made = form.Slab(2, 20)
    assert not made.add(b"key", b"x" * 18)
    assert made.add(b"key", b"x" * 17)
    assert not made.add(b"", b"x")
    made.clear()
    assert made.add(b"", b"")
    assert made.add(b"", b"1")
    assert not made.add(b"", b""), "there are two rows"


@FORMS
def test_errors_are_those_of_the_client(form: ModuleType) -> None:
    made = form.Slab(3, 100)
    assert made.address(1) - made.address(0) == 72
    assert made.error(2) == 0
    # as the client does it: 32 bits at the beginning of a message
    ctypes.c_int32.from_address(made.address(2)).value = KafkaError._QUEUE_FULL
    assert (made.error(1), made.error(2)) == (0, KafkaError._QUEUE_FULL)


# -- changes that lie in one memory ------------------------------------------------------------------------


def _packed(form: ModuleType, found: list[Frame]) -> Any:
    made = (PLAIN_FRAMES if form is PLAIN else frames_module).Frames()
    for frame in found:
        made.append(frame)
    return made


@FORMS
@given(st.lists(st.binary(max_size=400), max_size=20))
def test_frames_come_out_as_they_went_in(form: ModuleType, bodies: list[bytes]) -> None:
    found = [(bytes([number]) * 5, body) for number, body in enumerate(bodies)]
    made = _packed(form, found)
    assert (list(made), len(made)) == (found, len(found))
    made.clear()
    assert (list(made), len(made)) == ([], 0)
    assert made.put(HEADER, bytearray(b"only the first are taken"), 4) == 1
    assert list(made) == [(HEADER, b"only")]
    with pytest.raises(ValueError, match="another size"):
        made.append((b"\0\0\0\x27", b""))


@FORMS
@given(
    st.lists(st.integers(0, 70), max_size=30), st.integers(1, 12), st.integers(0, 300), st.integers(1, 9),
    st.integers(1, 2**40),
)  # fmt: skip
def test_packed_frames_become_the_same_messages(
    form: ModuleType, sizes: list[int], rows: int, room: int, most: int, seq: int
) -> None:
    found = [(HEADER, bytes([number]) * size) for number, size in enumerate(sizes)]
    packed = _packed(form, found)
    made = form.Slab(rows, room)
    sent: list[bytes] = []
    summed = place = done = 0
    while done < len(found):
        before, checksum = made.count, made.checksum
        place = made.add_frames(b"key", packed, place, most, seq + done)
        taken, summed = made.count - before, summed + made.checksum - checksum
        assert taken <= most
        done += taken
        if not taken and not made.count:
            header, body = packed.frame(place)
            sent.append(header + long(seq + done) + body)
            summed += crc32(sent[-1])
            place, done = packed.after(place), done + 1
        elif not taken:
            sent += [message["value"] for message in made.messages()]
            made.clear()
    sent += [message["value"] for message in made.messages()]
    assert sent == _values(found, seq)
    assert summed == sum(map(crc32, sent))
