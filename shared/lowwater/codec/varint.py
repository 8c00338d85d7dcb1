"""Avro's zig-zag varints, by table look-up: two bytes per step instead of a loop over single bytes.

The compiled encoders of `encoder.py` use these tables directly.
"""

from __future__ import annotations

from lowwater.errors import CodecError

SMALL_BITS = 14
SMALL_END = 1 << SMALL_BITS
_MASK = SMALL_END - 1

#: varints of 0 … 16383, canonical
SMALL: list[bytes] = [bytes((n,)) if n < 128 else bytes((n & 127 | 128, n >> 7)) for n in range(SMALL_END)]
#: fourteen bits with more to follow
MORE: list[bytes] = [bytes((n & 127 | 128, n >> 7 | 128)) for n in range(SMALL_END)]


def unsigned(z: int) -> bytes:
    """The varint of an already zig-zagged number below 2**64."""
    if z < SMALL_END:
        return SMALL[z]
    if z < 1 << 28:
        return MORE[z & _MASK] + SMALL[z >> 14]
    if z < 1 << 42:
        return MORE[z & _MASK] + MORE[z >> 14 & _MASK] + SMALL[z >> 28]
    if z < 1 << 56:
        return MORE[z & _MASK] + MORE[z >> 14 & _MASK] + MORE[z >> 28 & _MASK] + SMALL[z >> 42]
    if z < 1 << 64:
        low = MORE[z & _MASK] + MORE[z >> 14 & _MASK] + MORE[z >> 28 & _MASK]
        return low + MORE[z >> 42 & _MASK] + SMALL[z >> 56]
    raise CodecError(f"{z} does not fit 64 bits", hint="the column's type is too narrow for this value")


def long(n: int) -> bytes:
    """Avro int and long."""
    return unsigned(n << 1 if n >= 0 else ~(n << 1))


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """(value, offset after it)"""
    try:
        byte = data[at]
        at += 1
        z = byte & 127
        shift = 7
        while byte & 128:
            byte = data[at]
            at += 1
            z |= (byte & 127) << shift
            shift += 7
    except IndexError as error:
        raise CodecError(f"cut off after {len(data)} bytes, in the middle of a number") from error
    return z >> 1 ^ -(z & 1), at
