"""Effects of a statement on a table that are not in row events."""

from __future__ import annotations

from typing import NamedTuple

#: namespace (empty: the session's database) and table
Name = tuple[str, str]

KEY_CHANGED = "its primary key was changed"


class ForeignKey(NamedTuple):
    """A foreign key of a child table with the actions that InnoDB performs on its rows."""

    parent: Name
    columns: tuple[str, ...]
    acts_on_delete: bool
    acts_on_update: bool


class Effect(NamedTuple):
    """The effect on one table. An empty table name in `table` means all tables of the namespace."""

    table: Name
    #: all rows were deleted
    is_emptied: bool = False
    #: the table was dropped
    is_gone: bool = False
    #: the table was renamed to this
    new_name: Name | None = None
    #: why rows were added, removed or rewritten without row events; empty: none were
    reason: str = ""
    #: names of columns
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    #: foreign keys with actions that the statement creates
    keys: tuple[ForeignKey, ...] = ()
    #: MariaDB: becomes a system-versioned table
    is_versioned: bool = False


class AlteredNames(NamedTuple):
    """The tables that a statement concerns, by their full names."""

    #: name, and the new name if the table is renamed, else ""; in the order of the statement
    tables: list[tuple[str, str]]
    #: all tables of these
    databases: set[str]


def emptied(table: Name, *, is_gone: bool = False) -> Effect:
    return Effect(table, is_emptied=True, is_gone=is_gone)


def moved(table: Name, new_name: Name) -> Effect:
    return Effect(table, new_name=new_name)


def rewritten(table: Name, reason: str) -> Effect:
    return Effect(table, reason=reason)


def key_changed(table: Name) -> Effect:
    return rewritten(table, KEY_CHANGED)
