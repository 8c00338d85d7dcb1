"""Parses the SQL that LogMiner generates: the columns and their literals.

Only LogMiner's own statements are supported, not SQL in general: one row, one table, equalities joined by `and`. One
regular expression matches a whole literal at a time, and a statement's head is looked up by its text, because it is the
same for all rows of a table. Any other syntax stops the source, with the position in the statement.

A literal becomes: `None` for NULL · str for text and numbers (LogMiner quotes both) · bytes for HEXTORAW and EMPTY_BLOB
· bool for TRUE and FALSE · `Call` for the functions of dates, timestamps and intervals · `OPAQUE` for a missing value:
`Unsupported Type`, and constructors of object types. `literals.py` converts them by the column's type. Comments between
literals, such as the `/* JSON */` before a JSON column's bytes, are skipped.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from lowwater.errors import LogUnknownError


class Call(NamedTuple):
    """A function call with a text and, if given, a format."""

    function: str
    text: str
    format: str | None


class Opaque(Enum):
    """LogMiner has written no value: it is not in the log."""

    OPAQUE = "no value"


OPAQUE = Opaque.OPAQUE
Literal = None | str | bytes | bool | Call | Opaque
Named = dict[str, Literal]


class Statement(NamedTuple):
    #: as in a Change: c, u, d
    op: str
    owner: str
    table: str
    #: of an insert: the row; of an update: the columns that it sets
    values: Named
    #: of an update and a delete: the logged columns of the row before
    where: Named
    row_id: str | None


class Locator(NamedTuple):
    """The row and column of a LOB or an XML document that the following rows write piece by piece."""

    owner: str
    table: str
    column: str
    where: Named
    row_id: str | None


_NAME = r'"((?:[^"]|"")+)"'
_TABLE = rf"{_NAME}\.{_NAME}"
_COLUMN = re.compile(_NAME)
_COLUMNS = r'"(?:[^"]|"")+"(?:\s*,\s*"(?:[^"]|"")+")*'
_ALIAS = r'(?:\s+(?!(?:set|where)\b)(?:\w+|"(?:[^"]|"")+"))?'
#: before a column: the alias, or nothing
_OF = r'(?:(?:\w+|"(?:[^"]|"")+")\s*\.\s*)?'
_INSERT = re.compile(rf"\s*insert\s+into\s+{_TABLE}\s*\(\s*({_COLUMNS})\s*\)\s*values\s*\(", re.IGNORECASE)
_UPDATE = re.compile(rf"\s*update\s+{_TABLE}{_ALIAS}\s+set\s+", re.IGNORECASE)
_DELETE = re.compile(rf"\s*delete\s+from\s+{_TABLE}{_ALIAS}\s*", re.IGNORECASE)
_LOCATOR = re.compile(rf"select\s+{_OF}{_NAME}\s+(?:into\s+\w+\s+)?from\s+{_TABLE}{_ALIAS}\s+where\s+", re.IGNORECASE)
_XML_UPDATE = re.compile(
    rf"\s*(?:XML DOC BEGIN:)?\s*update\s+{_TABLE}{_ALIAS}\s+set\s+{_OF}{_NAME}\s*=\s*XMLType\(:1\)\s*where\s+",
    re.IGNORECASE,
)

# the common literals: a text, NULL or a number, including the delimiter after it
_TEXT = r"'([^']*(?:''[^']*)*)'"
_NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
_ITEM = re.compile(rf"\s*(?:{_TEXT}|(NULL)|({_NUMBER}))\s*([,)])")
_PAIR = re.compile(
    rf"\s*(?:\w+\.)?{_NAME}(?!\.)\s*(?:=\s*(?:{_TEXT}|(NULL)|({_NUMBER}))|(?:is|IS)\s+(NULL))(?=[\s,;]|\Z)"
)

# every single literal
_PLAIN = re.compile(rf"\s*(?:{_TEXT}|(NULL|TRUE|FALSE)\b|({_NUMBER})[fFdD]?)", re.IGNORECASE)
_NATIONAL = re.compile(rf"\s*(?:N|n|U|u){_TEXT}")
_CHR = re.compile(r"\s*CHR\s*\(\s*(\d+)\s*(?:USING\s+NCHAR_CS\s*)?\)", re.IGNORECASE)
_CALL = re.compile(rf"\s*(\w+)\s*\(\s*(?:(?:N|n)?{_TEXT}\s*(?:,\s*{_TEXT}\s*)?)?\)")
_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)
_UNSUPPORTED = re.compile(r"\s*Unsupported(?:\s+Type)?(?=[\s,);]|\Z)", re.IGNORECASE)
#: the constructor of an object type, or a call whose arguments are not one text: skipped to its closing parenthesis
_CONSTRUCTOR = re.compile(r'\s*(?:"(?:[^"]|"")+"\s*\.\s*)?(?:"(?:[^"]|"")+"|(\w+))\s*\(')
_INSIDE = re.compile(r"""[^'"()]+|'[^']*(?:''[^']*)*'|"[^"]*(?:""[^"]*)*"|([()])""")
_JOIN = re.compile(r"\s*\|\|")
_CODE_POINTS = re.compile(r"\\(\\|[0-9A-Fa-f]{4})")

_SURROGATE = re.compile("[\ud800-\udfff]")

_SET_LEFT = re.compile(rf"\s*{_OF}{_NAME}\s*=")
_WHERE_LEFT = re.compile(rf"\s*{_OF}(?:{_NAME}|(ROWID))\s*(?:=|(IS)\s+)", re.IGNORECASE)
_WHERE = re.compile(r"\s*where\s+", re.IGNORECASE)
_AND = re.compile(r"\s*and\b", re.IGNORECASE)
_ITEM_END = re.compile(r"\s*([,)])")
_COMMA = re.compile(r"\s*,")
_END = re.compile(r"\s*;?\s*\Z")
_LOCATOR_END = re.compile(r"\s*(?:for\s+update)?\s*;?\s*\Z", re.IGNORECASE)

_TIMES = frozenset({"TO_DATE", "TO_TIMESTAMP", "TO_TIMESTAMP_TZ", "TO_YMINTERVAL", "TO_DSINTERVAL"})
_NUMBERS = frozenset({"TO_NUMBER", "TO_BINARY_FLOAT", "TO_BINARY_DOUBLE"})
_TEXTS = frozenset({"TO_CHAR", "TO_NCHAR", "TO_CLOB", "TO_NCLOB", "CHARTOROWID"})
#: of types whose values are not in the log
_CONSTRUCTORS = frozenset({"XMLTYPE", "BFILENAME", "JSON", "TO_VECTOR", "VECTOR", "SDO_GEOMETRY", "ANYDATA"})
_WORDS: dict[str, Literal] = {"NULL": None, "TRUE": True, "FALSE": False}

#: an insert's head, by its text: (owner, table, columns)
_heads: dict[str, tuple[str, str, tuple[str, ...]]] = {}
_HEADS_MAX = 10_000


def parse(sql: str) -> Statement:
    """Parse an insert, update or delete of one row."""
    word = sql[:12].lstrip()[:1].lower()
    if word == "i":
        return _insert(sql)
    if word == "u":
        return _update(sql)
    if word == "d":
        return _delete(sql)
    raise _unknown(sql, 0, "insert, update or delete")


def parse_locator(sql: str) -> Locator:
    """Parse the row and column of the pieces of a LOB or an XML document."""
    found = _XML_UPDATE.match(sql)
    if found is not None:
        owner, table, column = map(_name, found.groups())
    else:
        found = _LOCATOR.search(sql)
        if found is None:
            raise _unknown(sql, 0, 'select "column" … from "owner"."table" where')
        column, owner, table = map(_name, found.groups())
    where: Named = {}
    row_id, at = _conditions(sql, found.end(), where)
    if _LOCATOR_END.match(sql, at) is None:
        raise _unknown(sql, at, "the statement's end")
    return Locator(owner, table, column, where, row_id)


def _insert(sql: str) -> Statement:
    owner, table, columns, at = _insert_head(sql)
    values: list[Literal] = []
    append = values.append
    scan = _ITEM.scanner(sql, at)  # type: ignore[attr-defined]  # not in the stubs; it continues where it stopped
    while True:
        found = scan.match()
        if found is None:
            value, at = _literal(sql, at)
            append(value)
            found = _ITEM_END.match(sql, at)
            if found is None:
                raise _unknown(sql, at, "`,` or `)` after a value")
            at = found.end()
            if found[1] == ")":
                break
            scan = _ITEM.scanner(sql, at)  # type: ignore[attr-defined]
            continue
        text, _, number, end = found.groups()
        append((text.replace("''", "'") if "'" in text else text) if text is not None else number)
        at = found.end()
        if end == ")":
            break
    if len(values) != len(columns):
        raise _unknown(sql, at, f"{len(columns)} values for the columns, not {len(values)}")
    if _END.match(sql, at) is None:
        raise _unknown(sql, at, "the statement's end")
    return Statement("c", owner, table, dict(zip(columns, values, strict=True)), {}, None)


def _insert_head(sql: str) -> tuple[str, str, tuple[str, ...], int]:
    # the head contains no literal, so the key for the lookup ends before the first value
    at = sql.find("values (") + 8
    head = _heads.get(sql[:at]) if at > 8 else None
    if head is not None:
        return *head, at
    found = _INSERT.match(sql)
    if found is None:
        raise _unknown(sql, 0, 'insert into "owner"."table"("column", …) values (')
    columns = tuple(map(_name, _COLUMN.findall(found[3])))
    if len(set(columns)) != len(columns):
        raise _unknown(sql, found.start(3), "each column once")
    head = (_name(found[1]), _name(found[2]), columns)
    if found.end() == at:
        if len(_heads) >= _HEADS_MAX:
            _heads.clear()
        _heads[sql[:at]] = head
    return *head, found.end()


def _update(sql: str) -> Statement:
    found = _UPDATE.match(sql)
    if found is None:
        raise _unknown(sql, 0, 'update "owner"."table" set')
    values: Named = {}
    at = found.end()
    while True:
        name, value, at = _pair(sql, at, _SET_LEFT)
        _put(sql, at, values, name, value)
        comma = _COMMA.match(sql, at)
        if comma is None:
            break
        at = comma.end()
    where: Named = {}
    row_id, at = _where(sql, at, where)
    return Statement("u", _name(found[1]), _name(found[2]), values, where, row_id)


def _delete(sql: str) -> Statement:
    found = _DELETE.match(sql)
    if found is None:
        raise _unknown(sql, 0, 'delete from "owner"."table" where')
    where: Named = {}
    row_id, _ = _where(sql, found.end(), where)
    return Statement("d", _name(found[1]), _name(found[2]), {}, where, row_id)


def _where(sql: str, at: int, where: Named) -> tuple[str | None, int]:
    found = _WHERE.match(sql, at)
    row_id: str | None = None
    if found is not None:
        row_id, at = _conditions(sql, found.end(), where)
    if _END.match(sql, at) is None:
        raise _unknown(sql, at, "`and`, or the statement's end")
    return row_id, at


def _conditions(sql: str, at: int, where: Named) -> tuple[str | None, int]:
    row_id: str | None = None
    while True:
        name, value, at = _pair(sql, at, _WHERE_LEFT)
        if name is None:
            if not isinstance(value, str):
                raise _unknown(sql, at, "a row id as text")
            row_id = value
        else:
            _put(sql, at, where, name, value)
        found = _AND.match(sql, at)
        if found is None:
            return row_id, at
        at = found.end()


def _put(sql: str, at: int, values: Named, name: str | None, value: Literal) -> None:
    if name is None or name in values:
        raise _unknown(sql, at, "each column once")
    values[name] = value


def _pair(sql: str, at: int, left: re.Pattern[str]) -> tuple[str | None, Literal, int]:
    """A column's name and its literal; name None: the row id."""
    found = _PAIR.match(sql, at)
    # a value continues after `||`
    if found is not None and sql.find("|", found.end(), found.end() + 3) < 0:
        name, text, _, number, _ = found.groups()
        value = (text.replace("''", "'") if "'" in text else text) if text is not None else number
        return (_name(name), value, found.end())
    found = left.match(sql, at)
    if found is None:
        raise _unknown(sql, at, "a column and its value")
    value, at = _literal(sql, found.end())
    groups = found.groups()
    if len(groups) > 2 and groups[2] is not None and value is not None:
        raise _unknown(sql, found.end(), "NULL after IS")
    return (_name(groups[0]) if groups[0] is not None else None, value, at)


def _literal(sql: str, at: int) -> tuple[Literal, int]:
    """Any literal, including several joined by `||`."""
    value, end = _one(sql, at)
    found = _JOIN.match(sql, end)
    if found is None:
        return (_whole(value, sql, at) if isinstance(value, str) else value), end
    parts: list[Literal] = [value]
    while found is not None:
        value, end = _one(sql, found.end())
        parts.append(value)
        found = _JOIN.match(sql, end)
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        # UNISTR may be split inside a surrogate pair: the halves are joined to one character
        return _whole("".join(texts), sql, at), end
    pieces = [part for part in parts if isinstance(part, bytes)]
    if len(pieces) == len(parts):
        return b"".join(pieces), end
    raise _unknown(sql, at, "texts, or bytes, on both sides of ||")


def _one(sql: str, at: int) -> tuple[Literal, int]:
    while (found := _COMMENT.match(sql, at)) is not None:
        at = found.end()
    found = _PLAIN.match(sql, at)
    if found is not None:
        text, word, number = found.groups()
        if text is not None:
            return text.replace("''", "'"), found.end()
        return (_WORDS[word.upper()] if word is not None else number), found.end()
    found = _NATIONAL.match(sql, at)
    if found is not None:
        text = found[1].replace("''", "'")
        # U'…' has the escapes of UNISTR
        return (_unescaped(text, sql, at) if found[0].lstrip()[0] in "Uu" else text), found.end()
    found = _CHR.match(sql, at)
    if found is not None:
        return chr(int(found[1])), found.end()
    found = _UNSUPPORTED.match(sql, at)
    if found is not None:
        return OPAQUE, found.end()
    found = _CALL.match(sql, at)
    if found is None:
        return OPAQUE, _behind_constructor(sql, at)
    name, text, form = found.groups()
    return _called(sql, at, name.upper(), text, form), found.end()


def _behind_constructor(sql: str, at: int) -> int:
    """The position after the constructor of an object; its arguments are skipped."""
    found = _CONSTRUCTOR.match(sql, at)
    if found is None or (found[1] is not None and found[1].upper() not in _CONSTRUCTORS):
        raise _unknown(sql, at, "a literal")
    depth, end = 1, found.end()
    while depth:
        found = _INSIDE.match(sql, end)
        if found is None:
            raise _unknown(sql, at, "the closing parenthesis of a constructor")
        depth += {"(": 1, ")": -1, None: 0}[found[1]]
        end = found.end()
    return end


def _called(sql: str, at: int, name: str, text: str | None, form: str | None) -> Literal:
    if text is not None:
        text = text.replace("''", "'")
        if name in _TIMES:
            return Call(name, text, form)
        if name == "HEXTORAW":
            try:
                return bytes.fromhex(text)
            except ValueError:
                raise _unknown(sql, at, "hexadecimal digits in HEXTORAW") from None
        if name == "UNISTR":
            return _unescaped(text, sql, at)
        if name in _NUMBERS and form is None:
            return text
        if name in _TEXTS and form is None:
            return text
        if name in _CONSTRUCTORS:
            return OPAQUE
    elif name in ("EMPTY_CLOB", "EMPTY_NCLOB"):
        return ""
    elif name == "EMPTY_BLOB":
        return b""
    raise _unknown(sql, at, f"a supported function, not {name}")


def _unescaped(text: str, sql: str, at: int) -> str:
    if "\\" not in text:
        return text
    left = _CODE_POINTS.sub("", text)
    if "\\" in left:
        raise _unknown(sql, at, "four hexadecimal digits after \\ in UNISTR")
    return _CODE_POINTS.sub(lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), text)


def _whole(text: str, sql: str, at: int) -> str:
    """Join surrogate pairs: UNISTR writes UTF-16."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        raise _unknown(sql, at, "both halves of a character in UNISTR") from None


def _name(quoted: str) -> str:
    return quoted.replace('""', '"')


def _unknown(sql: str, at: int, wanted: str) -> LogUnknownError:
    # Literals are left out of the message: columns may be masked. It shows only the statement's structure.
    shape = re.sub(r"'(?:[^']|'')*'?", "'…'", sql[at : at + 400]).lstrip()[:60]
    return LogUnknownError(
        f"LogMiner's SQL is not understood at character {at}: expected {wanted}, found {shape!r}",
        hint="capture the source by redo files, or report the statement's form",
    )
