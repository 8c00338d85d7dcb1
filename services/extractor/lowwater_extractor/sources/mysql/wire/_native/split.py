# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Splits received data into packets. Compiled with the C types of `split.pxd`."""

from __future__ import annotations

from typing import Final

#: a payload of this size continues in the next packet
_WHOLE: Final = 0xFFFFFF


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the complete payloads, and the rest."""
    found: list[bytes] = []
    raw, at, size = data, 0, len(data)
    while size - at >= 4:
        end = at + 4 + (raw[at] | raw[at + 1] << 8 | raw[at + 2] << 16)
        if end > size:
            break
        if end - at - 4 == _WHOLE:
            whole, end = _joined(data, at)
            if not end:
                break
            found.append(whole)
        else:
            found.append(data[at + 4 : end])
        at = end
    return found, data[at:]


def split_events(data: bytes) -> tuple[list[bytes], bytes, bytes]:
    """Return the events (each preceded by a zero byte), the rest, and the payload that ends the stream, if any."""
    found: list[bytes] = []
    raw, at, size = data, 0, len(data)
    while size - at >= 5:
        end = at + 4 + (raw[at] | raw[at + 1] << 8 | raw[at + 2] << 16)
        if end > size:
            break
        if raw[at + 4]:
            return found, b"", data[at + 4 : end]
        if end - at - 4 == _WHOLE:
            whole, end = _joined(data, at)
            if not end:
                break
            found.append(whole[1:])
        else:
            found.append(data[at + 5 : end])
        at = end
    return found, data[at:], b""


def _joined(data: bytes, at: int) -> tuple[bytes, int]:
    """Return a payload in several packets and the offset after it; 0 if it is not complete yet."""
    parts = []
    while len(data) - at >= 4:
        size = int.from_bytes(data[at : at + 3], "little")
        end = at + 4 + size
        if end > len(data):
            break
        parts.append(data[at + 4 : end])
        at = end
        if size < _WHOLE:
            return b"".join(parts), at
    return b"", 0
