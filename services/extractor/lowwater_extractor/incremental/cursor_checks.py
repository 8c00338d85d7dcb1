"""What a table must have to be read by a cursor, whatever database it is in, with the words that mend it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LowwaterError, StartRefusedError
from lowwater_extractor.api import Check
from lowwater_extractor.modes import CursorConfig, ModesConfig

#: what reading a text that is not of its type can raise
VALUE_ERRORS = (CodecError, ValueError, ArithmeticError, IndexError)


def refuse_bad(checks: Iterable[Check], source: str) -> None:
    for check in checks:
        if not check.is_good:
            raise StartRefusedError(f"{check.name}: {check.what}", source=source, hint=check.fix)


def unknown_columns(cursor: CursorConfig, columns: Collection[str]) -> list[str]:
    return [name for name in (*cursor.columns, *cursor.key) if name not in columns]


def is_whole(cursor: CursorConfig | None, columns: Collection[str], has_key: bool) -> bool:
    """A table has a cursor, its columns, and what names a row."""
    return cursor is not None and not unknown_columns(cursor, columns) and bool(cursor.key or has_key)


def check_tables(config: ModesConfig, there: Collection[str], fix: str) -> Check:
    named = [name for name in (*config.tables, *config.cursors) if not name.endswith(".*")]
    missing = list(dict.fromkeys(name for name in named if name not in there))
    if missing or not there:
        return Check("tables", False, f"no such table: {', '.join(missing or config.tables)}", fix)
    return Check("tables", True, f"{len(there)} tables")


def check_columns(config: ModesConfig, there: Mapping[str, Collection[str]], note: str = "") -> Check:
    """`there`: each table's columns."""
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
    """Without one an update would be a second row."""
    wrong = [name for name in keyless if name not in config.cursors or not config.cursors[name].key]
    fix = f"add a primary key, or say what names a row: cursors: {{{wrong[0]}: {{key: [id], …}}}}" if wrong else ""
    return Check("key", not wrong, f"none: {', '.join(wrong)}" if wrong else "all have one", fix)


def check_overlaps(count: int, wrong: list[str]) -> Check:
    fix = "overlap is for times, dates and numbers: take it out, or take such a cursor"
    return Check("overlap", not wrong, "; ".join(wrong) or f"{count} tables", fix if wrong else "")


def advise_indexes(wanted: list[str]) -> Check:
    """Advice only: without one, every look reads the whole table."""
    what = f"advised, each look reads the whole table: {'; '.join(wanted)}" if wanted else "there"
    return Check("index", True, what)


def value_error(table: TableSchema, column: str, error: Exception, hint: str) -> LowwaterError:
    """The value stays out of the message."""
    what, fix = "its text does not read as its type", hint
    if isinstance(error, CodecError):
        what, fix = error.what, error.hint or hint
    return CodecError(f"{table.full_name}.{column}: {what}", source=table.source, thread=1, hint=fix)
