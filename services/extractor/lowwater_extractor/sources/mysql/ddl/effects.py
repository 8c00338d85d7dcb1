"""What a statement does to a table beside the rows that the log has."""

from __future__ import annotations

from typing import NamedTuple

#: namespace (empty: the session's own) and table
Name = tuple[str, str]

KEY_CHANGED = "its primary key was changed"


class ForeignKey(NamedTuple):
    """Of a child: what InnoDB itself does to its rows when a row of the parent goes, or its key changes."""

    parent: Name
    columns: tuple[str, ...]
    acts_on_delete: bool
    acts_on_update: bool


class Effect(NamedTuple):
    """`table`: an empty table means all tables of the namespace."""

    table: Name
    #: all rows are gone
    is_emptied: bool = False
    #: so is the table
    is_gone: bool = False
    #: its rows are under this name now
    new_name: Name | None = None
    #: why rows came, went or were rewritten, and no event says which; empty: none did
    reason: str = ""
    #: columns that came and that went
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    #: keys that the statement makes, with actions
    keys: tuple[ForeignKey, ...] = ()
    #: of MariaDB: old rows are kept in it
    is_versioned: bool = False


def emptied(table: Name, *, is_gone: bool = False) -> Effect:
    return Effect(table, is_emptied=True, is_gone=is_gone)


def moved(table: Name, new_name: Name) -> Effect:
    return Effect(table, new_name=new_name)


def rewritten(table: Name, reason: str) -> Effect:
    return Effect(table, reason=reason)


def key_changed(table: Name) -> Effect:
    return rewritten(table, KEY_CHANGED)
