"""Random histories in which rows share keys while a transaction runs, as deferred uniqueness and shifts let them.

A slow and obvious replay: under each key there is a list of versions, the oldest first. A change takes the version that
its whole image names, or the oldest one where the log has no more than keys. At commit each key has at most one.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from tests.unit.lake.histories import Key, Row, Step
from tests.unit.lake.kept_histories import KeptHistory

from lowwater.lake.chain.manifest import Place

KINDS = (
    *("insert",) * 3,
    *("update",) * 3,
    *("delete",) * 2,
    *("move",) * 3,
    *("shift", "shift", "swap", "commit", "commit", "land", "version", "truncate"),
)
#: what happens to the lake meanwhile
BESIDE = ("compact", "retain", "retain", "below", "sweep", "copy", "copied", "copied")


def moving_steps() -> st.SearchStrategy[list[Step]]:
    def steps(kinds: tuple[str, ...]) -> st.SearchStrategy[Step]:
        return st.tuples(st.sampled_from(kinds), st.integers(0, 9), st.integers(0, 99), st.integers(0, 15))

    landing = st.tuples(st.lists(steps(KINDS), min_size=1, max_size=9), steps(("land",)), steps(BESIDE))
    return st.lists(landing, min_size=1, max_size=6).map(
        lambda found: [step for changes, land, other in found for step in (*changes, land, other)]
    )


class MovingHistory(KeptHistory):
    def __init__(self, *more: Any, is_whole: bool, lacks: bool, **options: Any) -> None:
        super().__init__(*more, **options)
        #: it leaves out columns that did not change
        self._lacks = lacks
        #: the log carries whole images before changes, or their keys only
        self._is_whole = is_whole
        self._there: dict[Key, list[Row]] = {key: [row] for key, row in self.rows.items()}

    def _picked(self, which: int) -> tuple[Key, Row] | None:
        """A version that a change may take."""
        if self._is_whole:
            every = [(key, row) for key in sorted(self._there) for row in self._there[key]]
        else:
            every = [(key, found[0]) for key, found in sorted(self._there.items()) if found]
        return every[which % len(every)] if every else None

    def _remove(self, key: Key, row: Row) -> None:
        self._there[key] = [one for one in self._there[key] if one is not row]
        if not self._there[key]:
            del self._there[key]

    def _insert(self, which: int, value: int, flags: int) -> None:
        key = (which % 5, "x" if flags & 1 else "y")
        # mostly where none is
        if key not in self._there or flags & 8:
            row = self._row(key, value, flags)
            self._there.setdefault(key, []).append(row)
            self._add("c", key, row)

    def _image(self, row: Row) -> Row:
        return self._here(row) if self._is_whole else {"a": row["a"], "b": row["b"]}

    def _change(self, old: Key, was: Row, new: Key, value: int, flags: int) -> None:
        made = self._row(new, value, flags)
        unchanged = [c for bit, c in ((1, "n"), (2, "note")) if flags & bit and c in made and self._lacks]
        row = {**made, **{c: was.get(c) for c in unchanged}}
        if old == new:
            place = next(n for n, one in enumerate(self._there[old]) if one is was)
            self._there[old][place] = row
        else:
            self._remove(old, was)
            self._there.setdefault(new, []).append(row)
        before = None if old == new and not self._is_whole and flags & 4 else self._image(was)
        self._add("u", new, {c: v for c, v in made.items() if c not in unchanged}, before, unchanged)

    def _update(self, which: int, value: int, flags: int) -> None:
        if (found := self._picked(which)) is not None:
            self._change(*found, found[0], value, flags)

    def _move(self, which: int, value: int, flags: int) -> None:
        new = (value % 5, "x" if value & 8 else "y")
        if (found := self._picked(which)) is not None and found[0] != new:
            self._change(*found, new, value, flags)

    def _delete(self, which: int, value: int, flags: int) -> None:
        if (found := self._picked(which)) is not None:
            self._remove(*found)
            self._add("d", found[0], self._image(found[1]))

    def _shift(self, which: int, value: int, flags: int) -> None:
        """As `UPDATE t SET a = a + 1`, the rows in some order."""
        found = [(key, rows[0]) for key, rows in self._there.items()]
        step = 1 if flags & 4 else -1
        for key, row in found if which % 2 else reversed(found):
            self._change(key, row, (key[0] + step, key[1]), value, flags & 11)

    def _swap(self, which: int, value: int, flags: int) -> None:
        one, other = self._picked(which), self._picked(which + 1)
        if one is not None and other is not None and one[0] != other[0]:
            self._change(*one, other[0], value, flags)
            self._change(*other, one[0], value + 1, flags)

    def _truncate(self, which: int, value: int, flags: int) -> None:
        if flags < 2:
            self._there.clear()
            self._add("t", None, None)
            gsn, seq, *_ = self.changes[-1]
            self.truncates.append(Place(gsn=gsn, seq=seq))

    def _commit(self, which: int, value: int, flags: int) -> None:
        if self._open:
            for key in sorted(self._there):
                while len(rows := self._there.get(key, [])) > 1:
                    gone = rows[which % len(rows) if self._is_whole else 0]
                    self._remove(key, gone)
                    self._add("d", key, self._image(gone))
            self.rows = {key: rows[0] for key, rows in self._there.items()}
        super()._commit(which, value, flags)

    def _copy(self, which: int, value: int, flags: int) -> None:
        """Where rows are whole, a copy may have read them later than at its `low`."""
        self._land(which, value, flags)
        if self._copying is None:
            self._copies += 1
            low = self.maker.gsn if self._lacks else max(self.maker.gsn - which % 4, self.history_from)
            self._copying = f"copy{self._copies}", f"{low}.*"
            rows = [self._here(row) for row in self.rows.values()]
            self.maker.copy(self.schema_ids[-1], self._copying[0], [rows[:2], rows[2:]], self._copying[1])
