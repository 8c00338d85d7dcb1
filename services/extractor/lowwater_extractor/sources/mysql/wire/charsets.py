"""Text in the log has its column's character set; published text is UTF-8.

What a byte means in a set of one byte a character is asked of the server itself, so that the log and a copy (which the
server converts) cannot differ. Sets of several bytes are decoded here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lowwater.errors import CodecError, LogUnknownError
from lowwater_extractor.sources.mysql.wire.binary_values import Convert

BINARY = "binary"

_UTF8 = ("utf8", "utf8mb3", "utf8mb4", "ascii")
_WIDE = {
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "cp932",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "cp949",
    "gb2312": "gb2312",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "big5": "big5",
}
#: where the server means other letters than the codec does: found by comparing all of them
_MENDED: dict[str, dict[int, int]] = {
    "sjis": {0xFF3C: 0x5C, 0xFFE0: 0xA2, 0xFFE1: 0xA3, 0xFFE2: 0xAC, 0x2225: 0x2016, 0xFF0D: 0x2212, 0xFF5E: 0x301C},
    "eucjpms": {0x2016: 0x2225, 0x2212: 0xFF0D, 0x301C: 0xFF5E, 0xA2: 0xFFE0, 0xA3: 0xFFE1, 0xAC: 0xFFE2, 0xA6: 0xFFE4},
    "gb18030": {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7},
}
#: what the codec makes of bytes that are no letters of the set
_NO_LETTERS = {name: frozenset("\x80\uf8f0\uf8f1\uf8f2\uf8f3") for name in ("sjis", "cp932")}


def check_utf8(v: bytes) -> None:
    """Raises where text is none: MariaDB takes half letters (surrogates), which nobody else can read."""
    try:
        v.decode()
    except UnicodeDecodeError as error:
        raise no_utf8() from error


def no_utf8() -> CodecError:
    """The value itself stays out of the message."""
    return CodecError(
        "bytes that are no text in UTF-8", hint="fix the row's text, or make the column binary; then reset the position"
    )


class Charsets(Protocol):
    def charset(self, collation: int) -> str: ...

    def letters(self, charset: str) -> list[str]:
        """What each of 256 bytes is, in a set of one byte a character."""
        ...


class Decoders:
    """One for each character set: from its bytes to UTF-8, or None where that is the same."""

    def __init__(self, charsets: Charsets) -> None:
        self._charsets = charsets
        self._made: dict[str, Convert | None] = {}

    def charset(self, collation: int) -> str:
        return self._charsets.charset(collation)

    def decoder(self, charset: str) -> Convert | None:
        if charset not in self._made:
            self._made[charset] = self._make(charset)
        return self._made[charset]

    def text(self, charset: str, data: bytes) -> str:
        decode = self.decoder(charset)
        found = data if decode is None else decode(data)
        return found.decode() if isinstance(found, bytes) else str(found)

    def _make(self, charset: str) -> Convert | None:
        if charset in (*_UTF8, BINARY):
            return None
        if charset in _WIDE:
            return _wide(charset, _WIDE[charset])
        letters = self._charsets.letters(charset)
        if len(letters) != 256:
            raise LogUnknownError(
                f"the character set {charset} is not known",
                hint="convert the column (ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4), and report it",
            )
        return _narrow(letters)


def _narrow(letters: list[str]) -> Convert:
    table = "".join(letters)

    def convert(v: bytes) -> str:
        # latin-1 makes a letter of each byte's number, which is then looked up
        return v.decode("latin-1").translate(table_of)

    table_of = {number: letter for number, letter in enumerate(table) if ord(letter) != number}
    return convert


def _wide(charset: str, codec: str) -> Callable[[bytes], str]:
    mended, no_letters = _MENDED.get(charset, {}), _NO_LETTERS.get(charset, frozenset())

    def convert(v: bytes) -> str:
        try:
            found = v.decode(codec)
        except UnicodeDecodeError as error:
            raise refused() from error
        if not no_letters.isdisjoint(found):
            raise refused()
        return found.translate(mended)

    def refused() -> CodecError:
        """The value itself stays out of the message."""
        return CodecError(
            f"bytes that are no text in {charset}",
            hint="convert the column (ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4)",
        )

    return convert
