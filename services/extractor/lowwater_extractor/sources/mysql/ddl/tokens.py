"""Splits SQL statements into tokens, with comments, quotes and escapes handled as by the server's lexer.

An executable comment (`/*!50001 … */`, and `/*M!100100 … */` on MariaDB) is part of the statement. If the server did
not execute it because of its version, it is in the log as a plain comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import IntEnum, StrEnum
from typing import NamedTuple


class NotUnderstoodError(Exception):
    """The statement cannot be parsed. The message never contains its text, which may contain a password."""


class TokenKind(StrEnum):
    #: unquoted: a keyword, a name, or a number
    WORD = "word"
    #: a quoted name
    NAME = "name"
    #: a quoted value; its text is not stored
    TEXT = "text"
    MARK = "mark"
    END = "end"


class Token(NamedTuple):
    kind: TokenKind
    text: str = ""
    #: a WORD in upper case, for comparison with keywords
    word: str = ""


END = Token(TokenKind.END)


class SqlMode(IntEnum):
    """Bits of `sql_mode` that affect tokens."""

    ANSI_QUOTES = 1 << 2
    #: MariaDB: names in brackets
    MSSQL = 1 << 10
    NO_BACKSLASH_ESCAPES = 1 << 20


_COMMON = r"""
    (?P<space>[\s\x00-\x20]+)
  | (?P<executed>/\*%s!(?:\d{6}|\d{5})?)
  | (?P<comment>/\*.*?\*/|--(?=[\s\x00-\x20]|\Z)[^\n]*|\#[^\n]*)
  | (?P<close>\*/)
  | (?P<name>`(?:[^`]|``)*`%s)
  | (?P<text>'(?:%s[^'%s]|'')*'%s)
  | (?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]+)
  | (?P<mark>.)
"""


def _pattern(sql_mode: int, is_mariadb: bool) -> re.Pattern[str]:
    has_escapes = not sql_mode & SqlMode.NO_BACKSLASH_ESCAPES
    escape, but = (r"\\.|", r"\\") if has_escapes else ("", "")
    names, texts = "", ""
    if sql_mode & SqlMode.ANSI_QUOTES:
        names += r'|"(?:[^"]|"")*"'
    else:
        texts += rf'|"(?:{escape}[^"{but}]|"")*"'
    if is_mariadb and sql_mode & SqlMode.MSSQL:
        names += r"|\[(?:[^\]]|\]\])*\]"
    return re.compile(_COMMON % ("M?" if is_mariadb else "", names, escape, but, texts), re.VERBOSE | re.DOTALL)


_patterns: dict[tuple[int, bool], re.Pattern[str]] = {}
_MODES = SqlMode.ANSI_QUOTES | SqlMode.MSSQL | SqlMode.NO_BACKSLASH_ESCAPES


def tokens(text: str, sql_mode: int = 0, *, is_mariadb: bool = False) -> Iterator[Token]:
    """Yield the tokens of a statement. Raises NotUnderstoodError for an unterminated quote or comment."""
    key = (sql_mode & _MODES, is_mariadb)
    pattern = _patterns.get(key)
    if pattern is None:
        pattern = _patterns[key] = _pattern(*key)
    is_executed = False
    for found in pattern.finditer(text):
        part = found.group()
        match found.lastgroup:
            case "word":
                yield Token(TokenKind.WORD, part, part.upper())
            case "name":
                yield Token(TokenKind.NAME, part[1:-1].replace(part[-1] * 2, part[-1]))
            case "text":
                yield Token(TokenKind.TEXT)
            case "executed":
                is_executed = True
            case "close":
                if not is_executed:
                    raise NotUnderstoodError("a comment end without a start")
                is_executed = False
            case "mark":
                if part in "'\"`" or text.startswith("/*", found.start()):
                    raise NotUnderstoodError("a quote or a comment without an end")
                yield Token(TokenKind.MARK, part)


class Cursor:
    """Iterates over tokens with lookahead."""

    def __init__(self, found: Iterator[Token]) -> None:
        self._found = found
        self._ahead: list[Token] = []

    def peek(self, ahead: int = 0) -> Token:
        while len(self._ahead) <= ahead:
            self._ahead.append(next(self._found, END))
        return self._ahead[ahead]

    def take(self) -> Token:
        token = self.peek()
        if token is not END:
            self._ahead.pop(0)
        return token

    def has(self, *words: str) -> bool:
        """Consume these keywords if they are next; return whether they were."""
        if any(self.peek(n).word != word for n, word in enumerate(words)):
            return False
        del self._ahead[: len(words)]
        return True

    def has_mark(self, mark: str) -> bool:
        token = self.peek()
        if token.kind is not TokenKind.MARK or token.text != mark:
            return False
        self._ahead.pop(0)
        return True

    def name(self) -> str:
        token = self.take()
        if token.kind not in (TokenKind.WORD, TokenKind.NAME) or not token.text:
            raise NotUnderstoodError("a name is missing")
        return token.text

    def table(self) -> tuple[str, str]:
        """Consume a table name; return namespace (empty: the session's database) and table."""
        if self.has_mark("."):
            return "", self.name()
        first = self.name()
        return (first, self.name()) if self.has_mark(".") else ("", first)

    @property
    def is_over(self) -> bool:
        return self.peek() is END or (self.peek().text == ";" and self.peek(1) is END)

    def rest(self) -> list[Token]:
        """Return all remaining tokens, without a final semicolon."""
        found = [*self._ahead, *self._found]
        self._ahead = []
        found = [token for token in found if token is not END]
        if found and found[-1] == Token(TokenKind.MARK, ";"):
            found.pop()
        return found


def parts(found: list[Token]) -> list[list[Token]]:
    """Split at commas outside of parentheses."""
    made: list[list[Token]] = [[]]
    depth = 0
    for token in found:
        if token.kind is TokenKind.MARK:
            depth += (token.text == "(") - (token.text == ")")
            if token.text == "," and not depth:
                made.append([])
                continue
        made[-1].append(token)
    return [part for part in made if part]
