"""SQLite's record format, written plainly from its description: what the decoders are held against."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

Value = int | float | str | bytes | None

integers = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.integers(-300, 300), st.sampled_from([0, 1, -1, 2**47, -(2**23)])
)
reals = st.floats(allow_nan=False)
texts = st.text(max_size=200)
blobs = st.binary(max_size=200)
values = st.one_of(st.none(), integers, reals, texts, blobs)


def varint(n: int) -> bytes:
    if n >= 1 << 56:
        head, last = n >> 8, n & 0xFF
        return bytes(0x80 | head >> 7 * (7 - i) & 0x7F for i in range(8)) + bytes([last])
    found = [n & 0x7F]
    while n := n >> 7:
        found.append(n & 0x7F | 0x80)
    return bytes(reversed(found))


def _piece(value: Value, *, shorten: bool) -> tuple[int, bytes]:
    match value:
        case None:
            return 0, b""
        case float():
            return 7, struct.pack(">d", value)
        case int():
            if value in (0, 1) and shorten:
                return 8 + value, b""
            for serial, size in enumerate((1, 2, 3, 4, 6, 8), 1):
                if -(1 << 8 * size - 1) <= value < 1 << 8 * size - 1:
                    return serial, value.to_bytes(size, "big", signed=True)
            raise OverflowError
        case str():
            data = value.encode()
            return 13 + 2 * len(data), data
        case bytes():
            return 12 + 2 * len(value), value


def record(*row: Value, shorten: bool = True) -> bytes:
    pieces = [_piece(value, shorten=shorten) for value in row]
    types = b"".join(varint(serial) for serial, _ in pieces)
    size = len(types) + 1
    while len(varint(size)) + len(types) != size:
        size += 1
    return varint(size) + types + b"".join(data for _, data in pieces)
