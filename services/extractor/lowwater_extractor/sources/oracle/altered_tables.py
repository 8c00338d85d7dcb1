"""The effect of a committed DDL statement on the captured tables: by the dictionary, not only by its text.

The dictionary before and after the statement shows which object a name belongs to, and which columns it has. Another
object under the same name has other rows (DROP and CREATE, a swap of names, an online redefinition), and a column that
was dropped and added again has lost its values: the log contains no row changes for either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lowwater_extractor.sources.oracle.ddl import TRUNCATE_CLUSTER, Ddl, Effect, Name
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion

Wants = Callable[[str, str], bool]


class Followed(NamedTuple):
    """The effect of a committed DDL statement on captured tables."""

    #: tables whose rows are no longer known → why
    stale: dict[str, str]
    #: tables whose rows are in an object that was not captured before
    joined: set[str]
    #: the tables' definitions after the statement
    versions: tuple[TableVersion, ...] = ()


def captured_names(names: Iterable[Name | None], owners: Sequence[str], wants: Wants) -> set[str]:
    """`OWNER.TABLE` of the captured tables that match these names; a name without an owner matches any owner's."""
    found: set[str] = set()
    for name in names:
        if name is not None:
            for owner in [name.owner] if name.owner else owners:
                if wants(owner, name.table):
                    found.add(f"{owner}.{name.table}")
    return found


def why_stale(before: TableVersion | None, after: TableVersion | None, statement: Ddl, *, is_new: bool) -> str:
    """Why the rows of a table are no longer known; empty if they are.

    `is_new`: the table's current object was created by this statement, or after the start of capture.
    """
    if after is None:
        # a DROP or RENAME of the table itself is published as a change
        is_told = before is None or (statement.effect in (Effect.EMPTIED, Effect.RENAMED) and not statement.cascades)
        return "" if is_told else f"{statement.verb}: the table no longer exists"
    if statement.verb == TRUNCATE_CLUSTER:
        return statement.verb if after.is_clustered else ""
    if statement.effect is Effect.ROWS or (statement.cascades and statement.effect is Effect.EMPTIED):
        return statement.verb
    if before is None or before.object_id != after.object_id:
        if is_new and statement.effect is Effect.NONE:
            return ""
        return f"{statement.verb}: the name belongs to another object, with other rows"
    moved = moved_columns(before, after)
    return f"{statement.verb}: columns were dropped and added again: {', '.join(moved)}" if moved else ""


def moved_columns(before: TableVersion, after: TableVersion) -> list[str]:
    """Columns whose position in the rows has changed: the same name, but a different column."""
    places = {column.name: column.number for column in before.visible}
    kept = [column.name for column in after.visible if places.get(column.name, column.number) != column.number]
    if not kept:
        return []
    # a rewritten table may renumber all of its columns: then their order is unchanged
    old = [column.name for column in before.stored if not column.is_hidden]
    new = [column.name for column in after.stored if not column.is_hidden and column.name in places]
    return [] if [name for name in old if name in new] == new else kept
