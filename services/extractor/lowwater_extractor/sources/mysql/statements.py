"""What a statement in the log is. Only the first words are looked at: with rows in the log, the rest says nothing new.

The text itself stays out of every message: it may hold a password.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple


class What(StrEnum):
    BEGIN = "begin"
    COMMIT = "commit"
    ROLLBACK = "rollback"
    SAVEPOINT = "savepoint"
    ROLLBACK_TO = "rollback to"
    XA_START = "xa start"
    XA_END = "xa end"
    XA_COMMIT = "xa commit"
    XA_ROLLBACK = "xa rollback"
    TRUNCATE = "truncate"
    #: of partitions, which takes rows away that no event names
    PARTITIONS = "partitions"
    #: what changes tables, users, settings: it commits what was open before it
    DDL = "ddl"
    #: changes of rows by their statement: they cannot be read
    ROWS = "rows"
    UNKNOWN = "unknown"


class Xid(NamedTuple):
    """The name that the application gave to a transaction."""

    format: int
    global_id: bytes
    branch: bytes

    def __str__(self) -> str:
        return f"X'{self.global_id.hex()}',X'{self.branch.hex()}',{self.format}"


class Statement(NamedTuple):
    what: What
    #: of TRUNCATE and of partitions: namespace (empty: the session's) and table
    table: tuple[str, str] = ("", "")
    xid: Xid | None = None


_LEADING = re.compile(rb"(?:\s+|/\*!\d*|/\*.*?\*/|--[ \t][^\n]*\n|#[^\n]*\n)+", re.DOTALL)
_WORD = re.compile(rb"[A-Za-z_]+")
_NAME = rb"(`(?:[^`]|``)+`|[^\s`.,;(]+)"
_TABLE = rb"(?:" + _NAME + rb"\s*\.\s*)?" + _NAME
_TRUNCATE = re.compile(rb"TRUNCATE\s+(?:TABLE\s+)?" + _TABLE, re.IGNORECASE)
_PARTITIONS = re.compile(
    rb"ALTER\s+(?:ONLINE\s+)?(?:IGNORE\s+)?TABLE\s+(?:IF\s+EXISTS\s+)?" + _TABLE
    + rb"\s.*?\b(?:(?:TRUNCATE|DROP|EXCHANGE|DISCARD|IMPORT|CONVERT)\s+PARTITION|(?:DISCARD|IMPORT)\s+TABLESPACE)\b",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_XID = re.compile(rb"X'([0-9A-Fa-f]*)'\s*,\s*X'([0-9A-Fa-f]*)'\s*,\s*(\d+)")

_DDL = frozenset(
    b"CREATE ALTER DROP RENAME GRANT REVOKE SET FLUSH ANALYZE OPTIMIZE REPAIR INSTALL UNINSTALL CHECK RESET".split()
)
_ROWS = frozenset(b"INSERT UPDATE DELETE REPLACE LOAD CALL WITH DO SELECT IMPORT".split())


def classify(text: bytes) -> Statement:
    leading = _LEADING.match(text)
    text = text[leading.end() :] if leading else text
    words = [word.upper() for word in _WORD.findall(text[:64])[:2]]
    first = words[0] if words else b""
    second = words[1] if len(words) > 1 else b""
    match first:
        case b"BEGIN" | b"START":
            return Statement(What.BEGIN)
        case b"COMMIT":
            return Statement(What.COMMIT)
        case b"ROLLBACK":
            return Statement(What.ROLLBACK_TO if second == b"TO" else What.ROLLBACK)
        case b"SAVEPOINT" | b"RELEASE":
            return Statement(What.SAVEPOINT)
        case b"XA":
            return _xa(text, second)
        case b"TRUNCATE":
            found = _TRUNCATE.match(text)
            return Statement(What.TRUNCATE, _table(found)) if found else Statement(What.UNKNOWN)
        case b"ALTER" if found := _PARTITIONS.match(text):
            return Statement(What.PARTITIONS, _table(found))
    if first in _DDL:
        return Statement(What.DDL)
    return Statement(What.ROWS if first in _ROWS else What.UNKNOWN)


def _table(found: re.Match[bytes]) -> tuple[str, str]:
    return _name(found.group(1) or b""), _name(found.group(2))


def _name(quoted: bytes) -> str:
    text = quoted.decode(errors="surrogateescape")
    return text[1:-1].replace("``", "`") if text.startswith("`") else text


def _xa(text: bytes, verb: bytes) -> Statement:
    kinds = {b"START": What.XA_START, b"BEGIN": What.XA_START, b"END": What.XA_END,
             b"COMMIT": What.XA_COMMIT, b"ROLLBACK": What.XA_ROLLBACK}  # fmt: skip
    found = _XID.search(text)
    if verb not in kinds or found is None:
        return Statement(What.UNKNOWN)
    global_id, branch, format_ = found.groups()
    xid = Xid(int(format_), bytes.fromhex(global_id.decode()), bytes.fromhex(branch.decode()))
    return Statement(kinds[verb], xid=xid)
