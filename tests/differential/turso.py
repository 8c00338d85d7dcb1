"""Turso as a kind: a file of the run's own, written by a connection that captures. The steps: `turso_steps.py`."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.differential.compare import float64, same
from tests.differential.turso_steps import FIRST_TABLES, TursoSteps
from tests.differential.workload import State, Step, TableState
from tests.support.turso_file import TursoFile


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@dataclass
class LiteTable:
    """What the generator has to know of a table."""

    name: str
    #: column → declared type, without generated columns
    types: dict[str, str] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    key: list[str] = field(default_factory=list)
    #: the key is the rowid
    is_numbered: bool = False

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def values(self) -> list[str]:
        return [name for name in self.types if name not in self.key]


def any_value(value: Any) -> Any:
    """Of a column without one type: 12, 12.0 and "12" are three values."""
    if isinstance(value, float):
        return ("real", float64(value))
    return value if value is None else (type(value).__name__, value)


def any_of_lake(text: Any) -> Any:
    if text is None:
        return None
    found = json.loads(text)
    if isinstance(found, dict):
        ((what, inner),) = found.items()
        return any_value(float(inner) if what == "real" else base64.b64decode(inner))
    return any_value(found)


def makes_of(declared: str) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """What makes the file's value canonical, and what the lake's (docs/turso.md)."""
    upper = declared.upper()
    if "INT" in upper or any(part in upper for part in ("CHAR", "CLOB", "TEXT")) or "BLOB" in upper:
        return same, same
    if any(part in upper for part in ("REAL", "FLOA", "DOUB")):
        return float64, float64
    return any_value, any_of_lake


class Turso(TursoSteps):
    name = "turso"
    source_kind = "turso"
    marker = "main.marker"

    def __init__(self, path: Path) -> None:
        self._file = TursoFile(path)
        self._error: type[Exception] = __import__("turso").Error
        self._wanted: set[str] | None = {"marker", *FIRST_TABLES}

    def version(self) -> str:
        return f"pyturso {version('pyturso')}"

    def config(self) -> dict[str, Any]:
        names = sorted(self._wanted) if self._wanted is not None else ["*"]
        return {"path": str(self._file.path), "tables": [f"main.{name}" for name in names], "chunk_rows": 40}

    def grow_config(self) -> None:
        self._wanted = None

    # -- steps -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self._file.do("PRAGMA foreign_keys = ON", *self.first_statements())

    def mark(self, marker: int) -> None:
        self._file.do(self._marking(marker))

    def _marking(self, marker: int) -> str:
        return f"UPDATE marker SET n = {marker} WHERE id = 1"

    def execute(self, step: Step, number: int) -> list[str]:
        if not step.is_atomic:
            self.mark(2 * number - 1)
            errors = [error for statement in step.statements if (error := self._try(statement))]
            self._try("ROLLBACK")
            self.mark(2 * number)
            return errors
        for statement in ("BEGIN IMMEDIATE", *step.statements, self._marking(2 * number), "COMMIT"):
            if error := self._try(statement):
                self._try("ROLLBACK")
                return [error]
        return []

    def _try(self, statement: str) -> str:
        try:
            self._file.do(statement)
        except self._error as error:
            return str(error) or type(error).__name__
        return ""

    def end_open(self) -> None:
        """A source that starts from scratch is refused if its config names a table that is gone: it is made."""
        there = {name for (name,) in self._file.ask("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        for name in sorted((self._wanted or set()) - there):
            self._file.do(f"CREATE TABLE {quoted(name)} (id INTEGER PRIMARY KEY, v TEXT)")

    def may_refuse(self, said: str) -> Step | None:
        """A step may drop a table before a source that was reset has read it; `end_open` makes it."""
        named = re.fullmatch(r"StartRefusedError: no such table: main\.(.*)", said)
        return Step("table that the config names") if named and named[1] in (self._wanted or ()) else None

    # -- what it holds -----------------------------------------------------------------------------------

    def state(self) -> State:
        names = [name for (name,) in self._file.ask("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        own = ("sqlite_", "turso_", "__turso_")
        names = [n for n in names if not n.startswith(own) and (self._wanted is None or n in self._wanted)]
        return {f"main.{name}": self._read(name) for name in names}

    def _read(self, name: str) -> TableState:
        table = LiteTable(name)
        keys: dict[int, str] = {}
        for _, column, declared, is_required, _, place, hidden in self._file.ask(f"PRAGMA table_xinfo({table.sql})"):
            if hidden:
                continue  # a generated one
            table.types[column] = declared
            if is_required:
                table.required.add(column)
            if place:
                keys[place] = column
        table.key = [keys[place] for place in sorted(keys)]
        table.is_numbered = [table.types[k].upper() for k in table.key] == ["INTEGER"]
        makes = [makes_of(declared) for declared in table.types.values()]
        columns = ", ".join(map(quoted, table.types))
        rows = self._file.ask(f"SELECT {columns} FROM {table.sql}")
        found = Counter(tuple(make(v) for (make, _), v in zip(makes, row, strict=True)) for row in rows)
        return TableState(tuple(table.types), found, tuple(of_lake for _, of_lake in makes), table)

    def close(self) -> None:
        self._file.close()
