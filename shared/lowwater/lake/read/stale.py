"""Tables whose state is unknown: since which gsn, why, and from which gsn on it is known again.

A table is stale from a `Stale` record on, until a later copy of it is readable.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lowwater.errors import StaleTableError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ALL_TABLES, Layer, StaleTables


@dataclass(frozen=True, slots=True)
class StaleSince:
    gsn: int
    reason: str


def stale_at(chain: Chain, table: str, gsn: int) -> StaleSince | None:
    """Since when the table is stale at this gsn; None if its state is known."""
    said = [stale for stale in chain.stale if stale.gsn <= gsn and not {table, ALL_TABLES}.isdisjoint(stale.tables)]
    if not said:
        return None
    copied = max((c.gsn for c in chain.copied if table in c.tables and c.gsn <= gsn), default=-1)
    since = sorted((stale for stale in said if stale.gsn > copied), key=lambda stale: stale.gsn)
    return _since(since[0], since[-1]) if since else None


def _since(first: StaleTables, last: StaleTables) -> StaleSince:
    """With the last reason, too: a table that is renamed and then dropped is not copied again."""
    return StaleSince(first.gsn, first.reason if last.reason == first.reason else f"{first.reason}; {last.reason}")


def stale_now(chain: Chain) -> dict[str, StaleSince]:
    """All stale tables at the end of the chain. In one pass, because it is called after every landing."""
    copied: dict[str, int] = {}
    for copy in chain.copied:
        for table in copy.tables:
            copied[table] = max(copied.get(table, -1), copy.gsn)
    found: dict[str, tuple[StaleTables, StaleTables]] = {}
    for stale in chain.stale:
        named: Iterable[str] = stale.tables
        if ALL_TABLES in stale.tables:
            named = {*chain.tables(), *(version.table for version in chain.versions.values())}
        for table in named:
            if stale.gsn > copied.get(table, -1):
                first, last = found.get(table, (stale, stale))
                found[table] = stale if stale.gsn < first.gsn else first, stale if stale.gsn >= last.gsn else last
    return {table: _since(first, last) for table, (first, last) in found.items()}


def check_not_stale(chain: Chain, table: str, gsn: int) -> None:
    since = stale_at(chain, table, gsn)
    readable = min((c.gsn for c in chain.copied if table in c.tables and c.gsn > gsn), default=None)
    if since is None:
        _check_known(chain, table, gsn, readable)
        return
    again = (
        f"it can be read from gsn {readable} on"
        if readable is not None
        else "it can be read again when a copy of it has landed: the source plans one, if the table is there"
    )
    raise StaleTableError(
        f"{table}: its state at gsn {gsn} is not known: stale since gsn {since.gsn}: {since.reason}",
        position=f"gsn {since.gsn}",
        hint=f"{again}; its changes can be read, and with allow_stale (`--allow-stale`) the available rows",
    )


def _check_known(chain: Chain, table: str, gsn: int, readable: int | None) -> None:
    """Raises StaleTableError for a table that was first captured after this gsn.

    It may have had rows at that time that are not in the lake, so an empty result could be wrong.
    """
    is_copied = any(table in copied.tables and copied.gsn <= gsn for copied in chain.copied)
    named = [stale.gsn for stale in chain.stale if table in stale.tables]
    first = min([*named, *([] if readable is None else [readable])], default=None)
    if is_copied or first is None or first <= gsn:
        return
    if any(file.layer is not Layer.COPY for file in chain.files(table, -1, gsn)):
        return
    again = "" if readable is None else f"it can be read from gsn {readable} on; "
    raise StaleTableError(
        f"{table}: its state at gsn {gsn} is not known: it was not captured before gsn {first}",
        position=f"gsn {first}",
        hint=f"{again}its changes can be read, and with allow_stale (`--allow-stale`) the available rows",
    )
