"""LOB locators in rows, and the values that are stored inside of them.

A locator has 20 bytes; if the LOB is stored in its row an inode follows, which can contain a short value. All numbers
are big endian in every database.

| at | |
|---|---|
| 0 | u16 length of the following bytes, u16 version |
| 4, 5 | kind (1 BLOB, 2 CLOB, 3 NCLOB); 0x04: the inode is in the row |
| 6, 7 | 0x80: text as UTF-16, because the character set has no fixed width; 0x40: that little endian |
| 10 | the LOB's id, 10 bytes |
| 20 | u16 length of the rest, this included |
| 22 | u16 flags: 0x0400 in pages, 0x0100 a BasicFile's value, 0x0800 a SecureFile's value |
| | BasicFile: u32 0, u16 length of the value, 6 bytes; the value at 36 |
| | SecureFile: u16 length from 26 on; u8@26 low two bits: bytes of the length at 28, less one; u8@27 low four bits: \
bytes of the version after it, less one; then the value |
"""

from __future__ import annotations

from lowwater.errors import CodecError

LOCATOR_BYTES = 20
_HAS_INODE = 0x04
_IN_PAGES, _BASIC, _SECURE = 0x0400, 0x0100, 0x0800
_WIDE, _LITTLE = 0x80, 0x40
_BASIC_HEAD = 16


def _bad(raw: bytes) -> CodecError:
    return CodecError(
        f"a LOB locator that is not understood: {raw[:40].hex(' ')}",
        hint="drop the column from capture (columns.drop), and report this with the database's version",
    )


def value_in(raw: bytes) -> bytes | None:
    """The bytes of the value, if the locator contains it; None if it is stored outside of the row."""
    if len(raw) < LOCATOR_BYTES:
        raise _bad(raw)
    if not raw[5] & _HAS_INODE:
        return None
    if len(raw) < 24 or int.from_bytes(raw[20:22]) != len(raw) - LOCATOR_BYTES:
        raise _bad(raw)
    flags = int.from_bytes(raw[22:24])
    if flags & _IN_PAGES:
        return None
    return _basic(raw) if flags & _BASIC else _secure(raw, flags)


def _basic(raw: bytes) -> bytes:
    at = LOCATOR_BYTES + _BASIC_HEAD
    size = int.from_bytes(raw[28:30])
    if len(raw) != at + size or any(raw[24:28]):
        raise _bad(raw)
    return raw[at:]


def _secure(raw: bytes, flags: int) -> bytes | None:
    if len(raw) < 30:
        raise _bad(raw)
    at = 29 + (raw[26] & 0x03)
    size = int.from_bytes(raw[28:at])
    at += 1 + (raw[27] & 0x0F)
    if not size:
        return b""
    if not flags & _SECURE:
        return None
    if len(raw) != at + size:
        raise _bad(raw)
    return raw[at:]


def text_codec(raw: bytes) -> str | None:
    """The codec of a CLOB's bytes; None: its column's character set."""
    if not raw[6] & _WIDE:
        return None
    return "utf-16-le" if raw[7] & _LITTLE else "utf-16-be"


def _locator(flags: int, *, is_text: bool, number: int) -> bytes:
    head = bytes([0, 0x54, 0, 1, 2 if is_text else 1, flags, _WIDE if is_text else 0, 0x80, 0, 2])
    return head + number.to_bytes(10)


def inline_locator(value: bytes, *, is_text: bool, number: int = 1 << 32) -> bytes:
    """The locator of a SecureFile LOB with its value."""
    wide = len(value) > 0xFF
    rest = bytes([wide, 0]) + len(value).to_bytes(1 + wide) + b"\x01" + value
    inode = b"\x48\x90" + len(rest).to_bytes(2) + rest
    return _locator(0x0C, is_text=is_text, number=number) + (len(inode) + 2).to_bytes(2) + inode


def distant_locator(*, is_text: bool, number: int = 1 << 32) -> bytes:
    """The locator of a LOB whose value and inode are outside of the row."""
    return _locator(0x08, is_text=is_text, number=number)
