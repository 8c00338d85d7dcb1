"""Finds schema changes that are not in the log, before the log is read to its end. Decisions only, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: name, CREATE statement and root page of a table in a row of `sqlite_schema` in the log
Line = tuple[str, str, int]


def unlogged_changes(
    known: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
    ahead: Iterable[tuple[Line | None, Line | None]],
    now: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
) -> tuple[set[str], set[str]]:
    """Return the tables whose current state is not the result of the log, and those that the log ends as others.

    The latter were altered or dropped in the log, and had got their names or columns without it.

    `known`: texts and places at the position up to which the log was read; `ahead`: schema changes in the rest of the
    log (before, after); `now`: texts and places in the database. The place of a table is compared only if the rest of
    the log does not name it.
    """
    expected = dict(known[0])
    pages = {name: page for name, (_, page) in known[1].items()}
    named: set[str] = set()
    unknown: set[str] = set()
    for was, then in ahead:
        if was is not None:
            name, text, page = was
            if is_another(expected.pop(name, None), pages.pop(name, None), text, page):
                unknown.add(name)
            named.add(name)
        if then is not None:
            name, expected[name], pages[name] = then
            named.add(name)
    texts, places = now
    changed = {name for name in expected.keys() | texts.keys() if expected.get(name) != texts.get(name)}
    moved = {name for name, place in known[1].items() if places.get(name, place) != place}
    return changed | (moved - named), unknown


def is_another(known: str | None, known_page: int | None, text: str, page: int) -> bool:
    """Return whether a table in the log is not the known one of its name: its statement or its root page differ.

    A page of 0 is unknown.
    """
    return known != text or bool(page and known_page and known_page != page)
