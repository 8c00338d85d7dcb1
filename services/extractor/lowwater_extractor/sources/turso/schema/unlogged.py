"""Finds schema changes that are not in the log, before the log is read to its end. Decisions only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: name and CREATE statement of a table in a row of `sqlite_schema` in the log
Line = tuple[str, str]


def unlogged_changes(
    known: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
    ahead: Iterable[tuple[Line | None, Line | None]],
    now: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
) -> set[str]:
    """Return the tables whose current state is not the result of the log.

    `known`: texts and places at the position up to which the log was read; `ahead`: schema changes in the rest of the
    log (before, after); `now`: texts and places in the database. The place of a table is compared only if the rest of
    the log does not name it.
    """
    expected = dict(known[0])
    named: set[str] = set()
    # tables that are in the log only because they were altered or dropped later
    unknown: set[str] = set()
    for was, then in ahead:
        if was is not None:
            if expected.pop(was[0], None) is None:
                unknown.add(was[0])
            named.add(was[0])
        if then is not None:
            expected[then[0]] = then[1]
            named.add(then[0])
    texts, places = now
    changed = {name for name in expected.keys() | texts.keys() if expected.get(name) != texts.get(name)}
    moved = {name for name, place in known[1].items() if places.get(name, place) != place}
    return changed | unknown | (moved - named)
