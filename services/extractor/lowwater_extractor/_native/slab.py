# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, annotation_typing=False
"""Messages side by side in memory, in the form in which the Kafka client takes many of them at once.

A change is a header, its `seq`, and a body; here they become one value, which is counted and summed up, and nothing of
it becomes a Python object. Plain Python, which Cython compiles with the C types of `slab.pxd`.

The compiled form checks no index by itself: nothing is written before its whole length is known to have room.
"""

from __future__ import annotations

from array import array
from ctypes import addressof, c_char
from typing import Final

from lowwater_extractor._native.frames import Frames

#: a message, as librdkafka has it (`rd_kafka_message_t` of a machine with 64 bits): so many words, and which is what
_WORDS: Final = 9
_PAYLOAD: Final = 3
_SIZE: Final = 4
_KEY: Final = 5
_KEY_SIZE: Final = 6

#: messages and bytes of a slab
ROWS: Final = 4096
ROOM: Final = 1 << 20
#: of `Frames`: the size of a frame, and its header
_FRAME_SIZE: Final = 4
_HEADER: Final = 5
#: the longest `seq`
_SEQ_MAX: Final = 10

_POLYNOMIAL: Final = 0xEDB8_8320
_ALL: Final = 0xFFFF_FFFF


def _tables() -> array[int]:
    """Of crc32, for eight bytes at once: what each of them does to the sum, by how far it stands from the last."""
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
    """As zlib has it; called once for each change, a function of Python's would cost more than the sum does."""
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
    """Filled, handed over, cleared; its memory stays where it is."""

    def __init__(self, rows: int = ROWS, room: int = ROOM) -> None:
        self._rows = rows
        self._room = room
        self._memory = bytearray(room)
        # what is seen through ctypes cannot be moved
        self._held = (c_char * room).from_buffer(self._memory)
        self._base = addressof(self._held)
        self._table = array("Q", [0]) * (_WORDS * rows)
        self._words = memoryview(self._table)
        self.clear()

    def clear(self) -> None:
        self.count = 0
        #: bytes of all values, and the sum of the changes' crc32
        self.size = 0
        self.checksum = 0
        self._at = 0

    def add_changes(self, key: bytes, frames: list[tuple[bytes, bytes]], start: int, seq: int) -> int:
        """The frames from `start` on, as many as there is room for: how many. The first one's number is `seq`."""
        at = self._put_key(key)
        if at < 0:
            return 0
        key_at = self._at
        key_size = at - key_at
        row = self.count
        number = start
        checksum = 0
        while number < len(frames) and row < self._rows:
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
        """The frames from this place on, as many as there is room for, and at most so many: the place behind them."""
        at = self._put_key(key)
        if at < 0:
            return place
        key_at = self._at
        key_size = at - key_at
        row = self.count
        stop = min(self._rows, row + most)
        checksum = 0
        while place < frames._end and row < stop:
            behind = frames.behind(place)
            header = place + _FRAME_SIZE
            if behind - header + _SEQ_MAX > self._room - at:
                break
            begin = at
            at = _put(self._memory, at, frames._memory, header, header + _HEADER)
            at = _put_seq(self._memory, at, seq)
            at = _put(self._memory, at, frames._memory, header + _HEADER, behind)
            checksum += _crc32(self._memory, begin, at, _TABLES)
            self._list(row, begin, at, key_at, key_size)
            place = behind
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
        """A record that is no change: whether there was room for it."""
        at = self._put_key(key)
        if at < 0 or len(value) > self._room - at:
            return False
        self._list(self.count, at, at + len(value), self._at, at - self._at)
        self._at = _put(self._memory, at, value, 0, len(value))
        self.size += len(value)
        self.count += 1
        return True

    def _put_key(self, key: bytes) -> int:
        """The place behind it; -1: there is no room for a message."""
        if self.count == self._rows or len(key) > self._room - self._at:
            return -1
        return _put(self._memory, self._at, key, 0, len(key))

    def _list(self, row: int, begin: int, end: int, key_at: int, key_size: int) -> None:
        word = _WORDS * row
        self._words[word + _PAYLOAD] = self._base + begin
        self._words[word + _SIZE] = end - begin
        self._words[word + _KEY] = self._base + key_at
        self._words[word + _KEY_SIZE] = key_size

    # -- for those who look at single messages -----------------------------------------------------------

    def address(self, row: int) -> int:
        """Where the client finds this message, and those behind it."""
        return self._table.buffer_info()[0] + 8 * _WORDS * row

    def error(self, row: int) -> int:
        """What the client says of a message that it did not take."""
        code = self._table[_WORDS * row] & 0xFFFF_FFFF
        return code - (1 << 32) if code >> 31 else code

    def messages(self) -> list[dict[str, bytes]]:
        """As objects, for a client that takes no others."""
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
