"""Replays a tangled transaction change by change: slow, and needed only if the log lacks columns. See `tangles`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from lowwater.lake.moved_keys.roles import REMOVE, UPDATE, Bools, Ints, Roles, key_values
from lowwater.lake.schema.adapt import UNCHANGED, alias, before_alias

_UNKNOWN = object()


@dataclass(frozen=True)
class Link:
    """The origin of the columns that a change lacks."""

    #: by column: the row of the same transaction that has it
    found: dict[int, int]
    #: columns whose values are those of the row that this key had before `seq` of the transaction
    lacking: tuple[int, ...] = ()
    seq: int = 0
    key_row: int = 0
    key_in_image: bool = False


@dataclass
class _Version:
    """A version of a row, between two changes."""

    #: the change that created it; -1 for the row from before the transaction
    row: int
    values: list[Any]
    #: by column: the row that has its value; without the columns that only the row before the transaction has
    sources: dict[int, int] = field(default_factory=dict)
    #: of the row before the transaction: its key, and the `seq` before which it had this key
    seq: int = 0
    key_row: int = 0
    key_in_image: bool = False

    def fits(self, image: Sequence[Any]) -> bool:
        pairs = zip(self.values, image, strict=True)
        return all(own is _UNKNOWN or own == value for own, value in pairs)


@dataclass
class Replayed:
    """As `Verdicts`, for one transaction."""

    counts: Bools
    links: dict[int, Link]


def replay(
    rows: pa.Table, names: Sequence[str], roles: Roles, replaced: Ints, was_there: Bools, *, is_whole: bool
) -> Replayed:
    """`roles`: of the transaction's tangled keys; `replaced`: the changes with such a role.

    `was_there`: for each group, whether the key had a row before the transaction.
    """
    one = _Replay(rows.take(pa.array(replaced)), names, roles, replaced, was_there, is_whole)
    one.run()
    return one.result()


class _Replay:
    def __init__(
        self, rows: pa.Table, names: Sequence[str], roles: Roles, replaced: Ints, was_there: Bools, is_whole: bool
    ) -> None:
        columns = len(names)
        self._numbers = replaced.tolist()
        self._op = rows["_op"].to_pylist()
        self._seq = rows["_seq"].to_pylist()
        self._unchanged = rows[UNCHANGED].to_pylist()
        self._rows = key_values(rows, [alias(n) for n in range(columns)])
        self._images = key_values(rows, [before_alias(n) for n in range(columns)])
        self._of_name = {name: n for n, name in enumerate(names)}
        self._roles, self._is_whole = roles, is_whole
        self._own: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._updates: set[int] = set(roles.row[roles.kind == UPDATE].tolist())
        for row, leaves, group in zip(roles.row.tolist(), roles.leaves.tolist(), roles.group.tolist(), strict=True):
            (self._left if leaves else self._own)[row] = group
        self._versions: list[list[_Version]] = [
            [self._old(int(roles.row[start]), bool(roles.leaves[start]))] if was else []
            for start, was in zip(roles.starts, was_there, strict=True)
        ]
        self._links: dict[int, Link] = {}

    def _old(self, row: int, in_image: bool, seq: int = 0) -> _Version:
        return _Version(-1, [_UNKNOWN] * len(self._of_name), {}, seq, row, in_image)

    def run(self) -> None:
        for place, row in enumerate(self._numbers):
            own, left = self._own.get(row), self._left.get(row)
            op = self._op[place]
            if op == "d":
                if own is not None:
                    self._take(own, self._rows[place])
                continue
            before: _Version | None = None
            if left is not None:
                before = self._take(left, self._images[place])
            elif op == "u" and own is not None and row in self._updates:
                before = self._take(own, self._images[place], put_back=True)
            elif op == "u":
                before = self._old(row, in_image=True, seq=self._seq[place])
            made = self._made(place, row, before)
            if own is None:
                continue
            if before is not None and before in self._versions[own]:
                self._versions[own][self._versions[own].index(before)] = made
            else:
                self._versions[own].append(made)

    def _take(self, group: int, image: Sequence[Any], *, put_back: bool = False) -> _Version | None:
        there = self._versions[group]
        if not there:
            return None
        found = there[0]
        if self._names_versions(image):
            named = [one for one in there if one.row >= 0 and one.fits(image)]
            found = named[0] if named else next((one for one in there if one.row < 0), found)
        if not put_back:
            self._versions[group] = [one for one in there if one is not found]
        return found

    def _names_versions(self, image: Sequence[Any]) -> bool:
        return self._is_whole and any(value is not None for value in image)

    def _made(self, place: int, row: int, before: _Version | None) -> _Version:
        left_out = self._unchanged[place] if self._op[place] == "u" else None
        numbers = [self._of_name[name] for name in left_out or () if name in self._of_name]
        values = list(self._rows[place])
        made = _Version(row, values, dict.fromkeys(range(len(values)), row))
        if before is None:
            before = self._old(row, in_image=False)
        made.seq, made.key_row, made.key_in_image = before.seq, before.key_row, before.key_in_image
        for n in numbers:
            # a whole before-image has the columns that the row lacks
            values[n] = self._images[place][n] if self._names_versions(self._images[place]) else before.values[n]
            if n in before.sources:
                made.sources[n] = before.sources[n]
            else:
                del made.sources[n]
        found = {n: made.sources[n] for n in numbers if n in made.sources}
        lacking = tuple(n for n in numbers if n not in made.sources)
        if numbers:
            self._links[row] = Link(found, lacking, made.seq, made.key_row, made.key_in_image)
        return made

    def result(self) -> Replayed:
        roles = self._roles
        counts = np.zeros(len(roles.row), bool)
        ends = np.append(roles.starts[1:], len(roles.row))
        for left, start, end in zip(self._versions, roles.starts, ends, strict=True):
            removes = np.flatnonzero(roles.kind[start:end] == REMOVE)
            if not left:
                counts[start + removes[-1]] = True
            elif len(left) > 1:
                counts[end - 1] = True  # no rule applies, so the last change wins
            elif left[0].row >= 0:
                (where,) = np.flatnonzero((roles.row[start:end] == left[0].row) & ~roles.leaves[start:end])
                counts[start + where] = True
        return Replayed(counts, self._links)
