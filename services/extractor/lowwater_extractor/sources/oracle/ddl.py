"""The effect of a DDL statement on the rows of tables: a tokenizer, and a parser of the first clauses. Pure.

Comments, quotes and strings are tokenized as by the server. A statement on a table that is not understood has the
effect `ROWS`: the table's rows may have changed, and have to be copied again.
"""

from __future__ import annotations

import itertools
import re
from enum import StrEnum
from typing import NamedTuple

#: empties all tables of a cluster and no other tables
TRUNCATE_CLUSTER = "TRUNCATE CLUSTER"


class Effect(StrEnum):
    #: rows are unchanged; the definition may have changed
    NONE = "none"
    #: all rows are deleted
    EMPTIED = "emptied"
    #: rows may have been added or removed without changes in the log
    ROWS = "rows"
    #: the rows belong to the name `other` from now on
    RENAMED = "renamed"


class Name(NamedTuple):
    """A name as in the data dictionary; the owner is empty if the statement does not give it."""

    owner: str
    table: str


class Ddl(NamedTuple):
    effect: Effect
    #: the first keywords, without names and values
    verb: str
    #: the tables that the statement is on
    tables: tuple[Name, ...] = ()
    #: EXCHANGE PARTITION … WITH TABLE, RENAME … TO
    other: Name | None = None
    #: the statement also empties or drops tables that it does not name
    cascades: bool = False
    #: DROP USER: all tables of this owner
    owner: str = ""


class _Token(NamedTuple):
    #: w: a word, in upper case; q: a quoted name; s: a string or a number; p: one other character
    kind: str
    text: str


_PATTERN = re.compile(
    r"""
      (?P<blank> \s+ | --[^\n]*(?:\n|\Z) | /\*.*?\*/ )
    | (?P<string> [nN]?[qQ]'(?:\[.*?\]|\{.*?\}|<.*?>|\(.*?\)|(?P<own>[^\s\[{<(]).*?(?P=own))'
                | [nN]?'[^']*(?:''[^']*)*' )
    | " (?P<quoted> [^"\0]+ ) "
    | (?P<word> [^\W\d][\w$\#]* )
    | (?P<number> \d[\w.]* )
    | (?P<other> [^'"] )
    """,
    re.VERBOSE | re.DOTALL,
)
_TABLE_VERBS = frozenset({"TRUNCATE", "DROP", "ALTER", "CREATE", "FLASHBACK", "RENAME"})
_BETWEEN = frozenset(
    {
        "GLOBAL", "PRIVATE", "TEMPORARY", "SHARDED", "DUPLICATED", "IMMUTABLE", "BLOCKCHAIN", "JSON", "COLLECTION",
        "OR", "REPLACE", "FORCE", "EDITIONABLE", "NONEDITIONABLE", "MATERIALIZED", "PUBLIC",
    }
)  # fmt: skip
_PARTITIONS = frozenset({"PARTITION", "PARTITIONS", "SUBPARTITION", "SUBPARTITIONS"})
#: clauses that remove or replace whole partitions
_PARTITION_ROWS = frozenset({"TRUNCATE", "DROP", "EXCHANGE"})
#: clauses of ALTER TABLE that do not change rows, except that some of them delete rows with INCLUDING ROWS
_HARMLESS = frozenset(
    {
        "ADD", "DROP", "MODIFY", "MOVE", "SPLIT", "MERGE", "COALESCE", "SHRINK", "SET", "RENAME", "ENABLE", "DISABLE",
        "ALLOCATE", "DEALLOCATE", "PARALLEL", "NOPARALLEL", "CACHE", "NOCACHE", "LOGGING", "NOLOGGING",
        "FILESYSTEM_LIKE_LOGGING", "COMPRESS", "NOCOMPRESS", "READ", "RESULT_CACHE", "ROW", "UPGRADE", "PCTFREE",
        "PCTUSED", "INITRANS", "MAXTRANS", "STORAGE", "MINIMIZE", "NOMINIMIZE", "INMEMORY", "NO", "MEMOPTIMIZE", "ILM",
        "FLASHBACK", "MONITORING", "NOMONITORING", "INDEXING", "ANNOTATIONS", "DEFAULT", "OVERFLOW", "PCTTHRESHOLD",
    }
)  # fmt: skip


class _Cut(Exception):
    """The text ends inside a quote or a comment."""


def parse(text: str) -> Ddl | None:
    """Parse a statement. None: it is not on a table, user, cluster or tablespace, and cannot change rows."""
    try:
        tokens = _tokens(text)
    except _Cut:
        tokens = []
    words = [token.text for token in tokens[:12] if token.kind == "w"]
    if not tokens:
        return Ddl(Effect.ROWS, "a statement that is not understood")
    verb = words[0] if tokens[0].kind == "w" else ""
    if verb not in _TABLE_VERBS:
        return None if verb else Ddl(Effect.ROWS, "a statement that is not understood")
    at = 1
    while at < len(tokens) and tokens[at].kind == "w" and tokens[at].text in _BETWEEN:
        at += 1
    what = tokens[at].text if at < len(tokens) and tokens[at].kind == "w" else ""
    if verb == "RENAME":
        return _rename(tokens)
    if what == "TABLE":
        return _Table(verb, tokens, at + 1).parse()
    if (verb, what) == ("DROP", "USER"):
        _, name = _name_at(tokens, at + 1)
        return Ddl(Effect.NONE, "DROP USER", owner=name.table if name else "", cascades=True)
    if (verb, what) in {("DROP", "CLUSTER"), ("DROP", "TABLESPACE")}:
        # each table is either unchanged or dropped: the dictionary shows which
        return Ddl(Effect.NONE, f"{verb} {what}", cascades=True)
    if (verb, what) == ("TRUNCATE", "CLUSTER"):
        return Ddl(Effect.EMPTIED, TRUNCATE_CLUSTER, cascades=True)
    return None


class _Table:
    """A statement on a table, from after the word TABLE."""

    def __init__(self, verb: str, tokens: list[_Token], at: int) -> None:
        self._verb = verb
        self._tokens = tokens
        self._at = at

    def parse(self) -> Ddl:
        verb = f"{self._verb} TABLE"
        tables = self._tables()
        if not tables:
            return Ddl(Effect.ROWS, verb)
        rest = self._outside()
        match self._verb:
            case "TRUNCATE":
                return Ddl(Effect.EMPTIED, verb, tables, cascades="CASCADE" in rest)
            case "DROP":
                return Ddl(Effect.EMPTIED, verb, tables)
            case "CREATE":
                return Ddl(Effect.ROWS if "AS" in rest else Effect.NONE, verb, tables)
            case "FLASHBACK":
                return Ddl(Effect.ROWS, verb, tables, self._other("RENAME", "TO"))
            case _:
                return self._alter(verb, tables, rest)

    def _tables(self) -> tuple[Name, ...]:
        found: list[Name] = []
        at = self._at
        while at < len(self._tokens) and self._tokens[at] in (_w("IF"), _w("NOT"), _w("EXISTS")):
            at += 1
        while True:
            at, name = _name_at(self._tokens, at)
            if name is None:
                break
            found.append(name)
            if at >= len(self._tokens) or self._tokens[at].text != "," or self._tokens[at].kind != "p":
                break
            at += 1
        self._at = at
        return tuple(found)

    def _outside(self) -> list[str]:
        """The remaining words outside of parentheses, in order; each parenthesized part is the one word `(`."""
        found, depth = [], 0
        for token in self._tokens[self._at :]:
            if token.kind == "p" and token.text in "()":
                if token.text == "(" and not depth:
                    found.append("(")
                depth += 1 if token.text == "(" else -1
            elif not depth:
                found.append(token.text if token.kind == "w" else "")
        return found

    def _other(self, *words: str) -> Name | None:
        """The name after these words."""
        wanted = [_w(word) for word in words]
        for at in range(self._at, len(self._tokens) - len(wanted)):
            if self._tokens[at : at + len(wanted)] == wanted:
                return _name_at(self._tokens, at + len(wanted))[1]
        return None

    def _alter(self, verb: str, tables: tuple[Name, ...], rest: list[str]) -> Ddl:
        first, second = (*rest, "", "")[:2]
        if first == "RENAME" and second == "TO":
            return Ddl(Effect.RENAMED, f"{verb} RENAME", tables, self._other("RENAME", "TO"))
        for clause, of in zip(rest, (*rest[1:], ""), strict=True):
            if clause in _PARTITION_ROWS and of in _PARTITIONS:
                return Ddl(Effect.ROWS, f"{verb} … {clause} {of}", tables, self._other("WITH", "TABLE"))
            if clause == "DROP" and of in ("COLUMN", "(", "UNUSED"):
                # the server rewrites rows without the column, by a row operation that is not decoded
                return Ddl(Effect.ROWS, f"{verb} … DROP COLUMN", tables)
        if any(pair == ("INCLUDING", "ROWS") for pair in itertools.pairwise(rest)):
            return Ddl(Effect.ROWS, f"{verb} … INCLUDING ROWS", tables)
        if first not in _HARMLESS:
            return Ddl(Effect.ROWS, verb, tables)
        return Ddl(Effect.NONE, f"{verb} … {first}", tables)


def _rename(tokens: list[_Token]) -> Ddl:
    at, old = _name_at(tokens, 1)
    if old is None or at >= len(tokens) or tokens[at] != _w("TO"):
        return Ddl(Effect.ROWS, "RENAME")
    return Ddl(Effect.RENAMED, "RENAME", (old,), _name_at(tokens, at + 1)[1])


def _w(word: str) -> _Token:
    return _Token("w", word)


def _name_at(tokens: list[_Token], at: int) -> tuple[int, Name | None]:
    """The index after a name with or without its owner, and the name."""
    parts: list[str] = []
    while at < len(tokens) and tokens[at].kind in "wq":
        parts.append(tokens[at].text)
        at += 1
        if at >= len(tokens) or tokens[at] != _Token("p", "."):
            break
        at += 1
    # @ is followed by a database link: the table is in another database
    if not parts or len(parts) > 2 or (at < len(tokens) and tokens[at] == _Token("p", "@")):
        return at, None
    return at, Name(parts[0], parts[1]) if len(parts) == 2 else Name("", parts[0])


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at, end = 0, len(text)
    while at < end:
        match = _PATTERN.match(text, at)
        if match is None or (match["other"] == "/" and text.startswith("/*", at)):
            raise _Cut
        at = match.end()
        if match["word"] is not None:
            found.append(_Token("w", match["word"].upper()))
        elif match["quoted"] is not None:
            found.append(_Token("q", match["quoted"]))
        elif match["string"] is not None or match["number"] is not None:
            found.append(_Token("s", ""))
        elif match["other"] is not None and match["other"] not in ";\0":
            found.append(_Token("p", match["other"]))
    return found
