"""Converts text from the character set of its column to UTF-8.

The characters of single-byte character sets are queried from the server, so that the log and a copy (which the server
converts) cannot differ. Multi-byte character sets are decoded with Python's codecs.
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
#: characters that the server maps differently than the codec, found by comparing all of them
_MENDED: dict[str, dict[int, int]] = {
    "sjis": {0xFF3C: 0x5C, 0xFFE0: 0xA2, 0xFFE1: 0xA3, 0xFFE2: 0xAC, 0x2225: 0x2016, 0xFF0D: 0x2212, 0xFF5E: 0x301C},
    "eucjpms": {0x2016: 0x2225, 0x2212: 0xFF0D, 0x301C: 0xFF5E, 0xA2: 0xFFE0, 0xA3: 0xFFE1, 0xAC: 0xFFE2, 0xA6: 0xFFE4},
    "gb18030": {0xE7C7: 0x1E3F, 0x1E3F: 0xE7C7},
}
#: results of the codec for bytes that are not valid in the character set
_NO_LETTERS = {name: frozenset("\x80\uf8f0\uf8f1\uf8f2\uf8f3") for name in ("sjis", "cp932")}


def check_utf8(v: bytes) -> None:
    """Raise CodecError for invalid UTF-8: MariaDB accepts surrogates, which other readers cannot decode."""
    try:
        v.decode()
    except UnicodeDecodeError as error:
        raise no_utf8() from error


def no_utf8() -> CodecError:
    """The message does not contain the value."""
    return CodecError(
        "bytes that are not valid UTF-8", hint="fix the row's text, or make the column binary; then reset the position"
    )


class Charsets(Protocol):
    def charset(self, collation: int) -> str: ...

    def letters(self, charset: str) -> list[str]:
        """Return the characters of all 256 bytes in a single-byte character set; empty for others."""
        ...


class Decoders:
    """Decoders by character set, from its bytes to text; None if no conversion is needed."""

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
                f"the character set {charset} is not supported",
                hint="convert the column (ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4), and report it",
            )
        return _narrow(letters)


def _narrow(letters: list[str]) -> Convert:
    """Converts as the server does. `letters`: the text of each byte."""

    def convert(v: bytes) -> str:
        # latin-1 maps each byte to the character with its number, which is then translated
        return v.decode("latin-1").translate(table_of)

    # a byte may be none or several characters
    table_of = {number: letter for number, letter in enumerate(letters) if letter != chr(number)}
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
        """The message does not contain the value."""
        return CodecError(
            f"bytes that are not valid {charset}",
            hint="convert the column (ALTER TABLE … CONVERT TO CHARACTER SET utf8mb4)",
        )

    return convert
