"""Classifies statements in the log, and determines their effects on tables that are not in row events.

A statement is split into tokens as by the server and identified by its verb and object. An unknown statement is
classified as `UNKNOWN`, which stops the source. Messages never contain the text, which may contain a password.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

from lowwater_extractor.sources.mysql.ddl.alter import Altered, altered, foreign_keys, is_versioned
from lowwater_extractor.sources.mysql.ddl.effects import Effect, emptied, key_changed, moved, rewritten
from lowwater_extractor.sources.mysql.ddl.tokens import Cursor, NotUnderstoodError, tokens


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
    #: changes of tables, users or settings, with an implicit commit
    DDL = "ddl"
    #: row changes logged as a statement, which cannot be captured
    ROWS = "rows"
    UNKNOWN = "unknown"


class Xid(NamedTuple):
    """The identifier that an application assigned to an XA transaction."""

    format: int
    global_id: bytes
    branch: bytes

    def __str__(self) -> str:
        return f"X'{self.global_id.hex()}',X'{self.branch.hex()}',{self.format}"


class Statement(NamedTuple):
    what: What
    effects: tuple[Effect, ...] = ()
    xid: Xid | None = None
    #: the verb and its object, for messages
    verb: str = ""


_XID = re.compile(rb"X'([0-9A-Fa-f]*)'\s*,\s*X'([0-9A-Fa-f]*)'\s*,\s*(\d+)")
_XA = {
    "START": What.XA_START, "BEGIN": What.XA_START, "END": What.XA_END, "COMMIT": What.XA_COMMIT,
    "ROLLBACK": What.XA_ROLLBACK,
}  # fmt: skip
#: most statements of a log: fast path
_USUAL = {b"BEGIN": Statement(What.BEGIN), b"COMMIT": Statement(What.COMMIT)}

_ROWS = frozenset(
    [
        "INSERT",
        "UPDATE",
        "DELETE",
        "REPLACE",
        "LOAD",
        "CALL",
        "WITH",
        "DO",
        "SELECT",
        "VALUES",
        "IMPORT",
        "HANDLER",
        "TABLE",
    ]
)
#: statements that never change rows
_HARMLESS = frozenset(
    ["GRANT", "REVOKE", "SET", "FLUSH", "ANALYZE", "OPTIMIZE", "CHECK", "INSTALL", "UNINSTALL", "RESET"]
)
#: objects other than tables, databases and indexes that can be created, altered or dropped, and words before them
_OBJECTS = frozenset(
    [
        "VIEW",
        "TRIGGER",
        "PROCEDURE",
        "FUNCTION",
        "EVENT",
        "USER",
        "ROLE",
        "SERVER",
        "TABLESPACE",
        "LOGFILE",
        "UNDO",
        "SPATIAL",
        "RESOURCE",
        "LIBRARY",
        "PACKAGE",
        "SEQUENCE",
        "DEFINER",
        "ALGORITHM",
        "SQL",
        "AGGREGATE",
        "JSON",
        "MATERIALIZED",
        "INSTANCE",
        "CATALOG",
        "MASKING",
        "PREPARE",
    ]
)
_INDEXES = frozenset(["INDEX", "UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"])


def classify(text: bytes | str, sql_mode: int = 0, *, is_mariadb: bool = False) -> Statement:
    """Classify a statement. `text`: bytes must be UTF-8; text in another character set is decoded by the caller."""
    if isinstance(text, bytes):
        if text in _USUAL:
            return _USUAL[text]
        text = text.decode(errors="surrogateescape")
    cursor = Cursor(tokens(text, sql_mode, is_mariadb=is_mariadb))
    try:
        return _classified(cursor, text)
    except NotUnderstoodError:
        return Statement(What.UNKNOWN, verb=_verb(text, sql_mode, is_mariadb))


def _verb(text: str, sql_mode: int, is_mariadb: bool) -> str:
    """Return up to two leading keywords, for messages."""
    try:
        cursor = Cursor(tokens(text, sql_mode, is_mariadb=is_mariadb))
        words = [cursor.peek(0).word, cursor.peek(1).word]
    except NotUnderstoodError:
        return ""
    known = (
        _ROWS | _HARMLESS | _OBJECTS | _INDEXES | {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE", "REPAIR", "TABLE"}
    )
    return " ".join(word for word in words if word in known)


def _classified(cursor: Cursor, text: str) -> Statement:
    if cursor.has("SET", "STATEMENT"):
        # MariaDB: settings for the statement after FOR
        while not cursor.has("FOR"):
            if cursor.is_over:
                raise NotUnderstoodError("no statement")
            cursor.take()
    first = cursor.take().word
    match first:
        case "BEGIN" | "START":
            return Statement(What.BEGIN)
        case "COMMIT":
            return Statement(What.COMMIT)
        case "ROLLBACK":
            has_to = cursor.has("TO") or cursor.has("WORK", "TO")
            return Statement(What.ROLLBACK_TO if has_to else What.ROLLBACK)
        case "SAVEPOINT" | "RELEASE":
            return Statement(What.SAVEPOINT)
        case "XA":
            return _xa(text, cursor.take().word)
        case "CREATE":
            return _ddl("CREATE", _create(cursor))
        case "ALTER":
            return _ddl("ALTER", _alter(cursor))
        case "DROP":
            return _ddl("DROP", _drop(cursor))
        case "TRUNCATE":
            cursor.has("TABLE")
            table = cursor.table()
            _check_end(cursor)
            return _ddl("TRUNCATE", [emptied(table)])
        case "RENAME":
            return _ddl("RENAME", _rename(cursor))
        case "REPAIR":
            return _ddl("REPAIR", _repair(cursor))
    if first in _HARMLESS:
        return Statement(What.DDL, verb=first)
    return Statement(What.ROWS if first in _ROWS else What.UNKNOWN, verb=first if first in _ROWS else "")


def _ddl(verb: str, effects: list[Effect]) -> Statement:
    return Statement(What.DDL, tuple(effects), verb=verb)


def _check_end(cursor: Cursor) -> None:
    """Raise unless the statement ends here, apart from WAIT or NOWAIT."""
    if cursor.has("WAIT"):
        cursor.take()
    else:
        cursor.has("NOWAIT")
    if not cursor.is_over:
        raise NotUnderstoodError("unexpected tokens at the end")


# -- CREATE, DROP, RENAME ----------------------------------------------------------------------------------


def _create(cursor: Cursor) -> list[Effect]:
    is_replacing = cursor.has("OR", "REPLACE")
    if cursor.has("TEMPORARY"):
        return []
    cursor.has("EXTERNAL")
    if cursor.has("TABLE"):
        is_new = not cursor.has("IF", "NOT", "EXISTS")
        table = cursor.table()
        rest = cursor.rest()
        found = Effect(table, keys=tuple(foreign_keys(rest)), is_versioned=is_versioned(rest))
        # an existing table is unchanged; a new one is empty, and its rows are in the log
        return [emptied(table), found] if is_replacing and is_new else [found]
    if cursor.has("DATABASE") or cursor.has("SCHEMA"):
        if not is_replacing:
            return []
        return [emptied((cursor.name(), ""))]
    _check_object(cursor)
    return []


def _drop(cursor: Cursor) -> list[Effect]:
    if cursor.has("TEMPORARY"):
        return []
    if cursor.has("TABLE") or cursor.has("TABLES"):
        cursor.has("IF", "EXISTS")
        found = [emptied(cursor.table(), is_gone=True)]
        while cursor.has_mark(","):
            found.append(emptied(cursor.table(), is_gone=True))
        if not cursor.has("RESTRICT"):
            cursor.has("CASCADE")
        _check_end(cursor)
        return found
    if cursor.has("DATABASE") or cursor.has("SCHEMA"):
        cursor.has("IF", "EXISTS")
        return [emptied((cursor.name(), ""), is_gone=True)]
    if cursor.has("INDEX"):
        cursor.has("IF", "EXISTS")
        index = cursor.name()
        if not cursor.has("ON"):
            raise NotUnderstoodError("no table")
        return [key_changed(cursor.table())] if index.upper() == "PRIMARY" else []
    _check_object(cursor)
    return []


def _check_object(cursor: Cursor) -> None:
    if cursor.peek().word not in _OBJECTS and cursor.peek().word not in _INDEXES:
        raise NotUnderstoodError("an unknown object")


def _rename(cursor: Cursor) -> list[Effect]:
    if cursor.has("USER"):
        return []
    if not cursor.has("TABLE") and not cursor.has("TABLES"):
        raise NotUnderstoodError("an unknown object")
    cursor.has("IF", "EXISTS")
    found = []
    while True:
        old = cursor.table()
        if cursor.has("WAIT"):
            cursor.take()
        else:
            cursor.has("NOWAIT")
        if not cursor.has("TO"):
            raise NotUnderstoodError("no new name")
        found.append(moved(old, cursor.table()))
        if not cursor.has_mark(","):
            _check_end(cursor)
            return found


def _repair(cursor: Cursor) -> list[Effect]:
    """Return the effects of REPAIR, which may lose rows of non-transactional engines."""
    if not cursor.has("LOCAL"):
        cursor.has("NO_WRITE_TO_BINLOG")
    if cursor.has("VIEW"):
        return []
    if not cursor.has("TABLE") and not cursor.has("TABLES"):
        raise NotUnderstoodError("an unknown object")
    found = [rewritten(cursor.table(), "it was repaired, which may lose rows")]
    while cursor.has_mark(","):
        found.append(rewritten(cursor.table(), "it was repaired, which may lose rows"))
    return found


# -- ALTER -------------------------------------------------------------------------------------------------


def _alter(cursor: Cursor) -> list[Effect]:
    if not cursor.has("ONLINE"):
        cursor.has("OFFLINE")
    is_ignoring = cursor.has("IGNORE")
    if not cursor.has("TABLE"):
        if cursor.peek().word not in ("DATABASE", "SCHEMA"):
            _check_object(cursor)
        return []
    cursor.has("IF", "EXISTS")
    table = cursor.table()
    if cursor.has("WAIT"):
        cursor.take()
    else:
        cursor.has("NOWAIT")
    found: Altered = altered(cursor.rest())
    reasons = list(found.reasons)
    if is_ignoring:
        reasons.append("ALTER IGNORE may remove rows")
    why = "; ".join(dict.fromkeys(reasons))
    effects = [Effect(table, False, False, None, why, found.added, found.dropped, found.keys, found.is_versioned)]
    for other in found.others:
        effects.append(rewritten(other, "rows were exchanged with a partition of another table"))
    if found.new_name is not None:
        effects.append(moved(table, found.new_name))
    return effects


# -- XA ----------------------------------------------------------------------------------------------------


def _xa(text: str, verb: str) -> Statement:
    found = _XID.search(text.encode(errors="surrogateescape"))
    if verb not in _XA or found is None:
        return Statement(What.UNKNOWN, verb="XA")
    global_id, branch, format_ = found.groups()
    xid = Xid(int(format_), bytes.fromhex(global_id.decode()), bytes.fromhex(branch.decode()))
    return Statement(_XA[verb], xid=xid)
