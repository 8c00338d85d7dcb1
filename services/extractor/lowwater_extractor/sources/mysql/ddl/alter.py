"""Parses ALTER TABLE and decides which clauses leave all rows unchanged. All others, also unknown ones, need a copy.

Added and dropped columns give a new table version, which the runtime compares with the copy. This module detects what
that comparison cannot: values that were rewritten while the columns stayed the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lowwater_extractor.sources.mysql.ddl.effects import KEY_CHANGED, ForeignKey, Name
from lowwater_extractor.sources.mysql.ddl.tokens import END, Cursor, NotUnderstoodError, Token, TokenKind, parts

__all__ = ["Altered", "Name", "altered", "foreign_keys", "is_versioned"]

_UNKNOWN = "it was altered in an unknown way"
_VALUES = "values of its columns were converted"
_PARTITIONS = "rows were removed or added with a partition"

#: attributes of an added column that give old rows no value
_HARMLESS_IN_COLUMN = frozenset(
    ["COMMENT", "COLLATE", "CHARACTER", "CHARSET", "SET", "FIRST", "AFTER", "NULL", "VISIBLE", "INVISIBLE", "CHECK"]
)
#: attributes that give, or may give, old rows a value
_FILLING = frozenset(
    [
        "DEFAULT",
        "NOT",
        "AUTO_INCREMENT",
        "AS",
        "GENERATED",
        "SERIAL",
        "PRIMARY",
        "KEY",
        "UNIQUE",
        "ON",
        "TIMESTAMP",
        "ROW",
    ]
)
#: table options, which do not change rows
_OPTIONS = frozenset(
    [
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "DEFAULT",
        "CHARACTER",
        "CHARSET",
        "COLLATE",
        "CHECKSUM",
        "TABLE_CHECKSUM",
        "COMMENT",
        "COMPRESSION",
        "CONNECTION",
        "DATA",
        "INDEX",
        "DELAY_KEY_WRITE",
        "ENCRYPTION",
        "ENGINE",
        "ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "SECONDARY_ENGINE",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "MAX_ROWS",
        "MIN_ROWS",
        "PACK_KEYS",
        "PASSWORD",
        "ROW_FORMAT",
        "START",
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "TABLESPACE",
        "PAGE_CHECKSUM",
        "PAGE_COMPRESSED",
        "PAGE_COMPRESSION_LEVEL",
        "TRANSACTIONAL",
        "IETF_QUOTES",
        "ENCRYPTED",
        "ENCRYPTION_KEY_ID",
        "AUTOEXTEND_SIZE",
        "STORAGE",
        "TYPE",
    ]
)
_PLAIN = frozenset(
    [
        "ENABLE",
        "DISABLE",
        "ORDER",
        "FORCE",
        "ALGORITHM",
        "LOCK",
        "WITHOUT",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
        "UPGRADE",
    ]
)
#: partition operations that keep all rows
_KEPT_PARTITIONS = frozenset(["REORGANIZE", "COALESCE", "REBUILD", "ANALYZE", "CHECK", "OPTIMIZE", "REMOVE"])
_PARTITION_VERBS = _KEPT_PARTITIONS | {"DROP", "TRUNCATE", "REPAIR", "EXCHANGE", "DISCARD", "IMPORT"}
#: engines that store rows
_ENGINES = frozenset(
    ["INNODB", "MYISAM", "ARIA", "ROCKSDB", "TOKUDB", "COLUMNSTORE", "NDB", "NDBCLUSTER", "CSV", "ARCHIVE"]
)
#: reserved words, which cannot be unquoted column names
_INDEXES = frozenset(["INDEX", "KEY", "FULLTEXT", "SPATIAL", "UNIQUE", "CHECK", "FOREIGN"])


@dataclass
class Altered:
    #: why rows changed without row events; empty: they did not
    reasons: list[str] = field(default_factory=list)
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    new_name: Name | None = None
    #: tables that a partition was exchanged with
    others: list[Name] = field(default_factory=list)
    keys: tuple[ForeignKey, ...] = ()
    is_versioned: bool = False

    def rewritten(self, reason: str) -> None:
        self.reasons.append(reason)


def altered(found: list[Token]) -> Altered:
    made = Altered(keys=tuple(foreign_keys(found)), is_versioned=is_versioned(found))
    before = ""
    for part in parts(found):
        # lists of partitions and ORDER BY columns contain commas themselves
        is_listed = before == "ORDER" and len(part) <= 2 and part[-1].word in ("", "ASC", "DESC", part[0].word)
        if not is_listed:
            _part(Cursor(iter(part)), made)
            before = part[0].word
        if before in _PARTITION_VERBS and [token.word for token in part[1:2]] == ["PARTITION"]:
            break
    if set(made.added) & set(made.dropped):
        made.rewritten("a column was dropped, and another one with its name was added")
    return made


def _part(cursor: Cursor, made: Altered) -> None:
    first = cursor.take()
    match first.word:
        case "ADD":
            _add(cursor, made)
        case "DROP":
            _drop(cursor, made)
        case "MODIFY":
            made.rewritten(_VALUES)
            _look_for_key(cursor.rest(), made)
        case "CHANGE":
            _change(cursor, made)
        case "ALTER":
            pass  # defaults, visibility, enforcement
        case "RENAME":
            _rename(cursor, made)
        case "CONVERT":
            _convert(cursor, made)
        case "TRUNCATE" | "DISCARD" | "IMPORT" | "REPAIR":
            made.rewritten(_PARTITIONS)
        case "EXCHANGE":
            made.rewritten(_PARTITIONS)
            made.others.append(_named_after(cursor, "WITH", "TABLE"))
        case word if word in _KEPT_PARTITIONS or word in _PLAIN:
            pass
        case "PARTITION" if cursor.has("BY"):
            pass
        case "WITH":
            pass  # WITH VALIDATION; system versioning is detected by `is_versioned`
        case word if word in _OPTIONS:
            _options([first, *cursor.rest()], made)
        case _:
            made.rewritten(_UNKNOWN)


def _named_after(cursor: Cursor, *words: str) -> Name:
    while not cursor.has(*words):
        if cursor.take() is END:
            raise NotUnderstoodError("no table")
    return cursor.table()


# -- columns and keys --------------------------------------------------------------------------------------


def _add(cursor: Cursor, made: Altered) -> None:
    if cursor.has("CONSTRAINT"):
        if cursor.peek().word not in ("PRIMARY", *_INDEXES):
            cursor.take()
        if cursor.has("PRIMARY"):
            made.rewritten(KEY_CHANGED)
        return
    if cursor.has("PRIMARY"):
        made.rewritten(KEY_CHANGED)
        return
    if _is_index(cursor) or cursor.peek().word == "PARTITION":
        return
    if cursor.has("SYSTEM", "VERSIONING") or cursor.has("PERIOD", "FOR"):
        return
    cursor.has("COLUMN")
    cursor.has("IF", "NOT", "EXISTS")
    if cursor.has_mark("("):
        inside = cursor.rest()
        for column in parts(inside[:-1]):
            _add_column(Cursor(iter(column)), made)
        return
    _add_column(cursor, made)


def _is_index(cursor: Cursor) -> bool:
    return cursor.peek().word in _INDEXES or cursor.has("VECTOR", "INDEX") or cursor.has("VECTOR", "KEY")


def _add_column(cursor: Cursor, made: Altered) -> None:
    """Record an added column, and whether old rows get a value other than NULL. This is decided here because a default
    may have been dropped again by the time the catalogue is queried."""
    first = cursor.peek()
    if first.word in ("PRIMARY", "CONSTRAINT"):
        _add(cursor, made)
        return
    if _is_index(cursor):
        return
    name = cursor.name()
    made.added += (name,)
    rest = cursor.rest()
    _look_for_key(rest, made)
    words = [token.word for token in rest]
    if _is_null_by_default(words):
        return
    if any(word in _FILLING for word in words):
        made.rewritten(f"the column {name} was added with a value for existing rows")


def _is_null_by_default(words: list[str]) -> bool:
    """Whether the column is explicitly `DEFAULT NULL` or `NULL`, without other attributes that give it a value."""
    at = 0
    is_said = False
    while at < len(words):
        word = words[at]
        if word == "DEFAULT" and words[at + 1 : at + 2] == ["NULL"]:
            is_said, at = True, at + 2
            continue
        if word == "NULL":
            is_said = True
        elif word in _FILLING and word != "TIMESTAMP":
            return False
        at += 1
    return is_said


def _look_for_key(rest: list[Token], made: Altered) -> None:
    """Detect a primary key in a column definition; KEY alone in a column definition means PRIMARY KEY."""
    depth = 0
    words = []
    for token in rest:
        if token.kind is TokenKind.MARK:
            depth += (token.text == "(") - (token.text == ")")
        if not depth:
            words.append(token.word)
    for at, word in enumerate(words):
        if word == "PRIMARY" or (word == "KEY" and (at == 0 or words[at - 1] not in ("UNIQUE", "PRIMARY", "FOREIGN"))):
            made.rewritten(KEY_CHANGED)


def _drop(cursor: Cursor, made: Altered) -> None:
    if cursor.has("PRIMARY"):
        made.rewritten(KEY_CHANGED)
        return
    if cursor.has("PARTITION"):
        made.rewritten(_PARTITIONS)
        return
    if cursor.has("SYSTEM", "VERSIONING"):
        made.rewritten("old versions of its rows were removed")
        return
    if cursor.has("FOREIGN") or cursor.has("CHECK") or cursor.has("PERIOD", "FOR"):
        return
    if cursor.has("INDEX") or cursor.has("KEY") or cursor.has("CONSTRAINT"):
        cursor.has("IF", "EXISTS")
        if cursor.name().upper() == "PRIMARY":
            made.rewritten(KEY_CHANGED)
        return
    cursor.has("COLUMN")
    cursor.has("IF", "EXISTS")
    made.dropped += (cursor.name(),)


def _change(cursor: Cursor, made: Altered) -> None:
    cursor.has("COLUMN")
    cursor.has("IF", "EXISTS")
    old, new = cursor.name(), cursor.name()
    made.rewritten(_VALUES)
    if old != new:
        made.dropped += (old,)
        made.added += (new,)
    _look_for_key(cursor.rest(), made)


def _rename(cursor: Cursor, made: Altered) -> None:
    if cursor.has("COLUMN"):
        cursor.has("IF", "EXISTS")
        old = cursor.name()
        if not cursor.has("TO"):
            raise NotUnderstoodError("no new name")
        made.dropped += (old,)
        made.added += (cursor.name(),)
        made.rewritten("a column was renamed")
        return
    if cursor.has("INDEX") or cursor.has("KEY"):
        return
    if not cursor.has("TO") and not cursor.has("AS"):
        cursor.has_mark("=")
    made.new_name = cursor.table()


def _convert(cursor: Cursor, made: Altered) -> None:
    if cursor.has("TO"):
        made.rewritten(_VALUES)
        return
    made.rewritten(_PARTITIONS)
    if cursor.has("PARTITION"):
        made.others.append(_named_after(cursor, "TO", "TABLE"))
    elif cursor.has("TABLE"):
        made.others.append(cursor.table())
    else:
        raise NotUnderstoodError("neither a partition nor a table")


def _options(found: list[Token], made: Altered) -> None:
    """Check table options, of which one clause may have several."""
    words = [token.word for token in found if token.text != "="]
    for at, word in enumerate(words):
        if word == "ENGINE" and "".join(words[at + 1 : at + 2]) not in _ENGINES:
            made.rewritten("its engine may not keep rows")
        if word in ("UNION", "SEQUENCE"):
            made.rewritten(_UNKNOWN)


# -- in a whole statement ----------------------------------------------------------------------------------


def is_versioned(found: list[Token]) -> bool:
    """Whether the statement makes a system-versioned table (MariaDB)."""
    words = [token.word for token in found]
    triples = zip(["", *words], words, words[1:], strict=False)
    return any(
        (first, second) == ("SYSTEM", "VERSIONING") and before not in ("DROP", "WITHOUT")
        for before, first, second in triples
    )


def foreign_keys(found: list[Token]) -> list[ForeignKey]:
    """Return the foreign keys whose actions change rows of the child."""
    made = []
    cursor = Cursor(iter(found))
    while cursor.peek() is not END:
        if not cursor.has("REFERENCES"):
            cursor.take()
            continue
        parent = cursor.table()
        columns: list[str] = []
        if cursor.has_mark("("):
            while not cursor.has_mark(")"):
                token = cursor.take()
                if token is END:
                    raise NotUnderstoodError("a list without an end")
                if token.kind is not TokenKind.MARK:
                    columns.append(token.text)
        if cursor.has("MATCH"):
            cursor.take()
        acts = {"DELETE": False, "UPDATE": False}
        while cursor.has("ON"):
            event = cursor.take().word
            if event not in acts:
                raise NotUnderstoodError("neither DELETE nor UPDATE")
            acts[event] = cursor.has("CASCADE") or cursor.has("SET", "NULL") or cursor.has("SET", "DEFAULT")
            if not acts[event] and not cursor.has("RESTRICT") and not cursor.has("NO", "ACTION"):
                raise NotUnderstoodError("an unknown action")
        if acts["DELETE"] or acts["UPDATE"]:
            made.append(ForeignKey(parent, tuple(columns), acts["DELETE"], acts["UPDATE"]))
    return made
