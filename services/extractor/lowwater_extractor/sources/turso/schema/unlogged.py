"""Changes of tables that are not in the log, found before all of the log is read. Decides only, does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

#: a table's name and text, as a row of `sqlite_schema` in the log has them
Line = tuple[str, str]


def unlogged_changes(
    known: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
    ahead: Iterable[tuple[Line | None, Line | None]],
    now: tuple[Mapping[str, str], Mapping[str, tuple[int, int]]],
) -> set[str]:
    """Names of tables that would not be what they are now if only the log had changed them.

    `known`: texts and places where the log was read to; `ahead`: what the rest of the log says of tables, before and
    after; `now`: texts and places in the database. Where a table lies in the file counts if the log does not name it.
    """
    expected = dict(known[0])
    named: set[str] = set()
    for was, then in ahead:
        if was is not None:
            expected.pop(was[0], None)
            named.add(was[0])
        if then is not None:
            expected[then[0]] = then[1]
            named.add(then[0])
    texts, places = now
    changed = {name for name in expected.keys() | texts.keys() if expected.get(name) != texts.get(name)}
    moved = {name for name, place in known[1].items() if places.get(name, place) != place}
    return changed | (moved - named)
