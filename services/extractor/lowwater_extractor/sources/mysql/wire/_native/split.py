# cython: language_level=3, boundscheck=False, wraparound=False, annotation_typing=False
"""Packets of a connection, one by one, out of what was received. Compiled with the C types of `split.pxd`."""

from __future__ import annotations

from typing import Final

#: a packet of this size goes on in the next one
_WHOLE: Final = 0xFFFFFF


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """Payloads, and what is not whole yet."""
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
    """Events (a zero stands before each), what is not whole yet, and the payload that ends them, if it has come."""
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
    """A payload in several packets, and the place behind it; 0: it is not whole yet."""
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
