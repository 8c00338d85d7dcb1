"""Python codecs for Oracle's character sets."""

from __future__ import annotations

import codecs

from lowwater.errors import StartRefusedError

#: UTF-8 with characters above U+FFFF as two surrogates of three bytes each: Python has no codec for it
CESU8 = "cesu-8"

_CODECS = {
    "AL32UTF8": "utf-8", "UTF8": CESU8, "AL24UTFFSS": CESU8, "AL16UTF16": "utf-16-be", "AL16UTF16LE": "utf-16-le",
    "US7ASCII": "ascii",
    "WE8ISO8859P1": "iso8859-1", "EE8ISO8859P2": "iso8859-2", "SE8ISO8859P3": "iso8859-3",
    "NEE8ISO8859P4": "iso8859-4", "CL8ISO8859P5": "iso8859-5", "AR8ISO8859P6": "iso8859-6",
    "EL8ISO8859P7": "iso8859-7", "IW8ISO8859P8": "iso8859-8", "WE8ISO8859P9": "iso8859-9",
    "NE8ISO8859P10": "iso8859-10", "BLT8ISO8859P13": "iso8859-13", "CEL8ISO8859P14": "iso8859-14",
    "WE8ISO8859P15": "iso8859-15",
    "EE8MSWIN1250": "cp1250", "CL8MSWIN1251": "cp1251", "WE8MSWIN1252": "cp1252", "EL8MSWIN1253": "cp1253",
    "TR8MSWIN1254": "cp1254", "IW8MSWIN1255": "cp1255", "AR8MSWIN1256": "cp1256", "BLT8MSWIN1257": "cp1257",
    "VN8MSWIN1258": "cp1258",
    "US8PC437": "cp437", "EL8PC737": "cp737", "BLT8PC775": "cp775", "WE8PC850": "cp850", "EE8PC852": "cp852",
    "RU8PC855": "cp855", "TR8PC857": "cp857", "WE8PC858": "cp858", "WE8PC860": "cp860", "IS8PC861": "cp861",
    "CDN8PC863": "cp863", "N8PC865": "cp865", "RU8PC866": "cp866", "EL8PC869": "cp869",
    "CL8KOI8R": "koi8-r", "CL8KOI8U": "koi8-u",
    "WE8MACROMAN8": "mac-roman", "WE8MACROMAN8S": "mac-roman",
    "WE8EBCDIC37": "cp037", "WE8EBCDIC500": "cp500", "WE8EBCDIC1140": "cp1140",
    "TH8TISASCII": "tis-620",
    "JA16EUC": "euc-jp", "JA16EUCTILDE": "euc-jp", "JA16SJIS": "cp932", "JA16SJISTILDE": "cp932",
    "KO16KSC5601": "euc-kr", "KO16MSWIN949": "cp949",
    "ZHS16CGB231280": "gb2312", "ZHS16GBK": "gbk", "ZHS32GB18030": "gb18030",
    "ZHT16BIG5": "big5", "ZHT16MSWIN950": "cp950", "ZHT16HKSCS": "big5hkscs",
}  # fmt: skip

#: codecs in which a byte below 0x80 is not always the ASCII character
NOT_ASCII = frozenset({"utf-16-be", "utf-16-le", "cp037", "cp500", "cp1140"})


def codec_of(charset: str) -> str:
    """The Python codec of a character set, or CESU8."""
    name = _CODECS.get(charset.upper())
    if name is None:
        raise StartRefusedError(
            f"the character set {charset!r} is not supported",
            hint="capture none of its text columns (columns.drop), or capture by LogMiner, and report the name",
        )
    if name != CESU8:
        codecs.lookup(name)
    return name


def cesu8_decode(raw: bytes, errors: str = "strict") -> str:
    """Decode CESU-8: pairs of surrogates become one character."""
    text = raw.decode("utf-8", "surrogatepass") if errors == "strict" else _lenient(raw)
    return text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", errors)


def _lenient(raw: bytes) -> str:
    try:
        return raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace")


def cesu8_encode(text: str) -> bytes:
    units = text.encode("utf-16-be")
    return b"".join(
        chr(units[at] << 8 | units[at + 1]).encode("utf-8", "surrogatepass") for at in range(0, len(units), 2)
    )
