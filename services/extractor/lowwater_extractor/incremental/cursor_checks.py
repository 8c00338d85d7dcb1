"""Checks of the prerequisites for reading a table by a cursor, for every source kind, each with its fix."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LowwaterError, StartRefusedError
from lowwater_extractor.api import Check
from lowwater_extractor.modes import CursorConfig, ModesConfig

#: errors raised when a text is not a valid value of its type
VALUE_ERRORS = (CodecError, ValueError, ArithmeticError, IndexError)


def refuse_bad(checks: Iterable[Check], source: str) -> None:
    for check in checks:
        if not check.is_good:
            raise StartRefusedError(f"{check.name}: {check.what}", source=source, hint=check.fix)


def unknown_columns(cursor: CursorConfig, columns: Collection[str]) -> list[str]:
    return [name for name in (*cursor.columns, *cursor.key) if name not in columns]


def is_whole(cursor: CursorConfig | None, columns: Collection[str], has_key: bool) -> bool:
    """Return whether a table has a cursor, all cursor columns, and a key."""
    return cursor is not None and not unknown_columns(cursor, columns) and bool(cursor.key or has_key)


def check_tables(config: ModesConfig, there: Collection[str], fix: str) -> Check:
    named = [name for name in (*config.tables, *config.cursors) if not name.endswith(".*")]
    missing = list(dict.fromkeys(name for name in named if name not in there))
    if missing or not there:
        return Check("tables", False, f"no such table: {', '.join(missing or config.tables)}", fix)
    return Check("tables", True, f"{len(there)} tables")


def check_columns(config: ModesConfig, there: Mapping[str, Collection[str]], note: str = "") -> Check:
    """`there`: the columns of each existing table."""
    wrong, fix = [], ""
    for name, columns in there.items():
        cursor = config.cursors.get(name)
        if cursor is None:
            wrong.append(f"{name} has none")
            fix = fix or f"add cursors: {{{name}: {{primary: …}}}}; or name the tables one by one, without this one"
        elif unknown := unknown_columns(cursor, columns):
            wrong.append(f"{name} has no column {', '.join(unknown)}")
            fix = fix or f"columns of {name}: {', '.join(columns)}{note}"
    return Check("cursors", not wrong, "; ".join(wrong) or f"{len(there)} cursors", fix)


def check_keys(config: ModesConfig, keyless: Iterable[str]) -> Check:
    """Every table needs a key: without one an update would be read as a second row."""
    wrong = [name for name in keyless if name not in config.cursors or not config.cursors[name].key]
    fix = f"add a primary key, or configure a key: cursors: {{{wrong[0]}: {{key: [id], …}}}}" if wrong else ""
    return Check("key", not wrong, f"none: {', '.join(wrong)}" if wrong else "all have one", fix)


def check_overlaps(count: int, wrong: list[str]) -> Check:
    fix = "overlap requires a cursor of times, dates or numbers: remove it, or use such a cursor"
    return Check("overlap", not wrong, "; ".join(wrong) or f"{count} tables", fix if wrong else "")


def advise_indexes(wanted: list[str]) -> Check:
    """Advice only: without an index, every poll reads the whole table."""
    what = f"advised, each poll reads the whole table: {'; '.join(wanted)}" if wanted else "present"
    return Check("index", True, what)


def value_error(table: TableSchema, column: str, error: Exception, hint: str) -> LowwaterError:
    """Return an error for a value that cannot be read; the message does not contain the value."""
    what, fix = "a value that is not valid for the column's type", hint
    if isinstance(error, CodecError):
        what, fix = error.what, error.hint or hint
    return CodecError(f"{table.full_name}.{column}: {what}", source=table.source, thread=1, hint=fix)
