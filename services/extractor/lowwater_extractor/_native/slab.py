# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""A buffer of Kafka messages, laid out as `rd_kafka_produce_batch` expects them.

A change is a header, its `seq` and a body; they are concatenated to one value, which is counted and added to the
checksum without creating a Python object. This is plain Python that Cython compiles with the C types of `slab.pxd`.

The compiled form has no bounds checks: before each write the whole length is checked against the free room.
"""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char
from typing import Final

from lowwater_extractor._native.frames import Frames

#: `rd_kafka_message_t` on a 64-bit machine: its number of words, and the words of its fields
_WORDS: Final = 9
_PAYLOAD: Final = 3
_SIZE: Final = 4
_KEY: Final = 5
_KEY_SIZE: Final = 6

#: maximum number of messages and of bytes of a slab
ROWS: Final = 4096
ROOM: Final = 1 << 20
#: bytes of the size field and of the header in `Frames`
_FRAME_SIZE: Final = 4
_HEADER: Final = 5
#: maximum number of bytes of `seq`
_SEQ_MAX: Final = 10

_POLYNOMIAL: Final = 0xEDB8_8320
_ALL: Final = 0xFFFF_FFFF


def _tables() -> array[int]:
    """Return the tables of crc32 for eight bytes at a time ("slicing by 8"), one for each distance from the last."""
    tables = array("I", [0]) * 2048
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        tables[byte] = crc
    for place in range(256, 2048):
        before = tables[place - 256]
        tables[place] = before >> 8 ^ tables[before & 255]
    return tables


_TABLES = memoryview(_tables())


def _crc32(data: bytearray, at: int, stop: int, tables: memoryview) -> int:
    """Return the same as `zlib.crc32`; a Python call for each change would cost more than the checksum itself."""
    crc = _ALL
    while stop - at >= 8:
        low = crc ^ (data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24)
        crc = (
            tables[1792 + (low & 255)] ^ tables[1536 + (low >> 8 & 255)]
            ^ tables[1280 + (low >> 16 & 255)] ^ tables[1024 + (low >> 24)]
            ^ tables[768 + data[at + 4]] ^ tables[512 + data[at + 5]]
            ^ tables[256 + data[at + 6]] ^ tables[data[at + 7]]
        )  # fmt: skip
        at += 8
    while at < stop:
        crc = crc >> 8 ^ tables[(crc ^ data[at]) & 255]
        at += 1
    return crc ^ _ALL


def _put(out: bytearray, at: int, data: bytes | bytearray, start: int, stop: int) -> int:
    for place in range(stop - start):
        out[at + place] = data[start + place]
    return at + stop - start


def _put_seq(out: bytearray, at: int, seq: int) -> int:
    left = 2 * seq
    while left > 127:
        out[at] = left & 127 | 128
        left >>= 7
        at += 1
    out[at] = left
    return at + 1


class Slab:
    """A slab is filled, passed to the client and cleared; the address of its memory does not change."""

    def __init__(self, rows: int = ROWS, room: int = ROOM) -> None:
        self._rows = rows
        self._room = room
        self._memory = bytearray(room)
        # while ctypes exports the buffer, the bytearray cannot be resized or moved
        self._held = (c_char * room).from_buffer(self._memory)
        self._base = addressof(self._held)
        self._table = array("Q", [0]) * (_WORDS * rows)
        self._words = memoryview(self._table)
        self.clear()

    def clear(self) -> None:
        self.count = 0
        #: bytes of all values, and the sum of the crc32 of all changes
        self.size = 0
        self.checksum = 0
        self._at = 0

    def add_changes(self, key: bytes, frames: list[tuple[bytes, bytes]], start: int, most: int, seq: int) -> int:
        """Add frames from index `start` on, at most `most` and as many as there is room for, numbered from `seq`.

        Returns how many.
        """
        at = self._put_key(key)
        if at < 0:
            return 0
        key_at = self._at
        key_size = at - key_at
        row = self.count
        stop = min(self._rows, row + most)
        number = start
        checksum = 0
        while number < len(frames) and row < stop:
            frame = frames[number]
            header = frame[0]
            body = frame[1]
            if len(header) + len(body) + _SEQ_MAX > self._room - at:
                break
            begin = at
            at = _put(self._memory, at, header, 0, len(header))
            at = _put_seq(self._memory, at, seq)
            at = _put(self._memory, at, body, 0, len(body))
            checksum += _crc32(self._memory, begin, at, _TABLES)
            self._list(row, begin, at, key_at, key_size)
            row += 1
            seq += 1
            number += 1
        if number > start:
            self._added(row, at, key_at + key_size, checksum)
        return number - start

    def add_frames(self, key: bytes, frames: Frames, place: int, most: int, seq: int) -> int:
        """Add frames from offset `place` on, at most `most` and as many as there is room for; returns the offset after
        them."""
        at = self._put_key(key)
        if at < 0:
            return place
        key_at = self._at
        key_size = at - key_at
        row = self.count
        stop = min(self._rows, row + most)
        checksum = 0
        while place < frames._end and row < stop:
            end = frames.after(place)
            header = place + _FRAME_SIZE
            if end - header + _SEQ_MAX > self._room - at:
                break
            begin = at
            at = _put(self._memory, at, frames._memory, header, header + _HEADER)
            at = _put_seq(self._memory, at, seq)
            at = _put(self._memory, at, frames._memory, header + _HEADER, end)
            checksum += _crc32(self._memory, begin, at, _TABLES)
            self._list(row, begin, at, key_at, key_size)
            place = end
            row += 1
            seq += 1
        if row > self.count:
            self._added(row, at, key_at + key_size, checksum)
        return place

    def _added(self, count: int, at: int, begin: int, checksum: int) -> None:
        self.size += at - begin
        self.checksum += checksum
        self._at = at
        self.count = count

    def add(self, key: bytes, value: bytes) -> bool:
        """Add a record that is not a change; returns False if there is no room for it."""
        at = self._put_key(key)
        if at < 0 or len(value) > self._room - at:
            return False
        self._list(self.count, at, at + len(value), self._at, at - self._at)
        self._at = _put(self._memory, at, value, 0, len(value))
        self.size += len(value)
        self.count += 1
        return True

    def _put_key(self, key: bytes) -> int:
        """Write the key and return the offset after it; -1 if there is no room for a message."""
        if self.count == self._rows or len(key) > self._room - self._at:
            return -1
        return _put(self._memory, self._at, key, 0, len(key))

    def _list(self, row: int, begin: int, end: int, key_at: int, key_size: int) -> None:
        word = _WORDS * row
        self._words[word + _PAYLOAD] = self._base + begin
        self._words[word + _SIZE] = end - begin
        self._words[word + _KEY] = self._base + key_at
        self._words[word + _KEY_SIZE] = key_size

    # -- single messages ---------------------------------------------------------------------------------

    def address(self, row: int) -> int:
        """Return the address of this message's `rd_kafka_message_t`; those of later messages follow it."""
        return self._table.buffer_info()[0] + 8 * _WORDS * row

    def error(self, row: int) -> int:
        """Return the error code that librdkafka set for a message that it did not accept."""
        code = self._table[_WORDS * row] & 0xFFFF_FFFF
        return code - (1 << 32) if code >> 31 else code

    def messages(self) -> list[dict[str, bytes]]:
        """Return the messages as dicts, for `produce_batch` of confluent-kafka."""
        found = []
        for word in range(0, _WORDS * self.count, _WORDS):
            key, value = (self._table[word + place] - self._base for place in (_KEY, _PAYLOAD))
            found.append(
                {
                    "key": bytes(self._memory[key : key + self._table[word + _KEY_SIZE]]),
                    "value": bytes(self._memory[value : value + self._table[word + _SIZE]]),
                }
            )
        return found
