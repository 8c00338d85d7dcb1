"""What a DDL statement has made of the captured tables, once it has committed: by the dictionary, not only its text.

The text says what was meant; the dictionary, before and after, says which object a name has, and which of its columns.
Another object under the same name has other rows (DROP and CREATE, a swap of names, an online redefinition), and a
column that was dropped and added again has lost its values: the log has no changes for either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from lowwater_extractor.sources.oracle.ddl import TRUNCATE_CLUSTER, Ddl, Effect, Name
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion

Wants = Callable[[str, str], bool]


class Followed(NamedTuple):
    """What a DDL statement that has committed did to captured tables."""

    #: whose rows are not known any more → why
    stale: dict[str, str]
    #: those of them whose rows lie in an object that was not captured before
    joined: set[str]
    #: what the tables are from then on
    versions: tuple[TableVersion, ...] = ()


def captured_names(names: Iterable[Name | None], owners: Sequence[str], wants: Wants) -> set[str]:
    """`OWNER.TABLE` of the captured tables that these can be; a name without an owner may be any owner's."""
    found: set[str] = set()
    for name in names:
        if name is not None:
            for owner in [name.owner] if name.owner else owners:
                if wants(owner, name.table):
                    found.add(f"{owner}.{name.table}")
    return found


def why_stale(before: TableVersion | None, after: TableVersion | None, statement: Ddl, *, is_new: bool) -> str:
    """Why the rows of a name are not known any more; empty: they are.

    `is_new`: the object that the name has now was made by this statement, or after the start of capture.
    """
    if after is None:
        # what is gone by its own DROP or RENAME is published as such
        is_told = before is None or (statement.effect in (Effect.EMPTIED, Effect.RENAMED) and not statement.cascades)
        return "" if is_told else f"{statement.verb}: the table is not there any more"
    if statement.verb == TRUNCATE_CLUSTER:
        return statement.verb if after.is_clustered else ""
    if statement.effect is Effect.ROWS or (statement.cascades and statement.effect is Effect.EMPTIED):
        return statement.verb
    if before is None or before.object_id != after.object_id:
        if is_new and statement.effect is Effect.NONE:
            return ""
        return f"{statement.verb}: the name has another object, with other rows"
    moved = moved_columns(before, after)
    return f"{statement.verb}: columns that were dropped and made again: {', '.join(moved)}" if moved else ""


def moved_columns(before: TableVersion, after: TableVersion) -> list[str]:
    """Those whose values lie elsewhere in the rows than before: the name is the same, the column is not."""
    places = {column.name: column.number for column in before.visible}
    kept = [column.name for column in after.visible if places.get(column.name, column.number) != column.number]
    if not kept:
        return []
    # a rewritten table may number all of its columns again: then their order is the same
    old = [column.name for column in before.stored if not column.is_hidden]
    new = [column.name for column in after.stored if not column.is_hidden and column.name in places]
    return [] if [name for name in old if name in new] == new else kept
