"""Finds which row a tangled key has after its transaction, with vectorised operations; see `tangles` for the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.moved_keys.replay import Link, replay
from lowwater.lake.moved_keys.roles import ADD, REMOVE, UPDATE, Bools, Ints, Roles, array, bools, key_codes
from lowwater.lake.schema.adapt import UNCHANGED, alias, before_alias


@dataclass
class Verdicts:
    """The result by role. At most one role of a group counts; none if the key has the same row as before."""

    counts: Bools
    maybe: Bools
    #: by row: the origin of columns that the log lacks
    links: Mapping[int, Link]


class Rules:
    """The rules for the tangled keys of some changes. `replaced`: rows with a role for one of these keys."""

    def __init__(
        self, rows: pa.Table, key: Sequence[int], names: Sequence[str], tangled: Roles, replaced: Ints
    ) -> None:
        self._rows, self._names, self._tangled, self._replaced = rows, names, tangled, replaced
        self._whole = _has_whole_images(rows, key, len(names), tangled)
        self._groups = _Groups.of(tangled)
        self._gsn = array(rows, "_gsn").to_numpy()
        #: transactions in which the log lacks columns: a change does not have all values of its row
        self._lacking: Ints = np.zeros(0, np.int64)
        if UNCHANGED in rows.column_names:
            lacks = bools(array(rows, UNCHANGED).is_valid())
            self._lacking = np.unique(self._gsn[replaced[lacks[replaced]]])
        #: groups for which it must be known whether the key had a row before
        is_lacking = np.isin(tangled.gsn[tangled.starts], self._lacking)
        self.asked: Ints = np.flatnonzero(self._is_open & is_lacking)

    @property
    def _is_open(self) -> Bools:
        """For each group: the key has a row if and only if it had one before."""
        found: Bools = (self._groups.sum == 0) & (self._groups.first_kind == ADD)
        return found

    def judge(self, existed: Bools | None) -> Verdicts:
        tangled, groups = self._tangled, self._groups
        verdicts = Verdicts(np.zeros(len(tangled.row), bool), np.zeros(len(tangled.row), bool), {})
        survivors, is_kept = _survivors(self._rows, len(self._names), tangled, groups, self._whole)
        # more rows were added than removed, or more removed than existed: no rule applies, so the last change wins
        is_odd = np.abs(groups.sum) > 1
        is_there = np.where(is_odd, tangled.kind[groups.last] != REMOVE, groups.sum >= 0)
        chosen = np.where(is_odd, groups.last, np.where(is_there, survivors, groups.last_remove))
        is_kept = is_kept & (groups.sum == 0)
        verdicts.counts[chosen[~is_kept]] = True
        verdicts.maybe[chosen[~is_kept & self._is_open]] = True
        if existed is not None and len(self._lacking):
            self._replay(existed, verdicts)
        return verdicts

    def _replay(self, existed: Bools, verdicts: Verdicts) -> None:
        """Replays the transactions that lack columns, change by change."""
        tangled = self._tangled
        was_there = self._groups.sum <= 0
        was_there[self.asked] = existed
        of_replaced = self._gsn[self._replaced]
        links: dict[int, Link] = {}
        for gsn in self._lacking:
            of_gsn = tangled.gsn == gsn
            roles = tangled.where(of_gsn)
            found = replay(
                self._rows,
                self._names,
                roles,
                self._replaced[of_replaced == gsn],
                was_there[tangled.group[of_gsn][roles.starts]],
                is_whole=bool(self._whole[of_gsn][0]),
            )
            links |= found.links
            verdicts.counts[of_gsn], verdicts.maybe[of_gsn] = found.counts, False
        verdicts.links = links


@dataclass(frozen=True)
class _Groups:
    """For each group: the number of adds minus removes, and indexes of roles."""

    sum: Ints
    first_kind: Ints
    last: Ints
    last_add: Ints
    last_remove: Ints

    @classmethod
    def of(cls, roles: Roles) -> _Groups:
        starts, number = roles.starts, np.arange(len(roles.row))
        sums = np.add.reduceat((roles.kind == ADD).astype(np.int64) - (roles.kind == REMOVE), starts)
        last_add, last_remove = (
            np.maximum.reduceat(np.where(roles.kind == kind, number, -1), starts) for kind in (ADD, REMOVE)
        )
        ends = np.append(starts[1:], len(number)) - 1
        return cls(sums, roles.kind[starts], ends, last_add, last_remove)


def _has_whole_images(rows: pa.Table, key: Sequence[int], columns: int, roles: Roles) -> Bools:
    """By role: whether the before-images of its transaction are whole. In a log they are whole or have only the key."""
    others = [n for n in range(columns) if n not in key]
    says = np.zeros(rows.num_rows, bool)
    is_delete = bools(pc.equal(array(rows, "_op"), "d"))
    for n in others:
        says |= np.where(
            is_delete, bools(array(rows, alias(n)).is_valid()), bools(array(rows, before_alias(n)).is_valid())
        )
    of_role = says[roles.row] & (roles.leaves | (roles.kind != ADD))
    found: Bools = np.isin(roles.gsn, roles.gsn[of_role])
    return found


def _survivors(rows: pa.Table, columns: int, roles: Roles, groups: _Groups, whole: Bools) -> tuple[Ints, Bools]:
    """For each group: the role that created the remaining row, if any, and whether that is the row from before."""
    # the oldest row is removed first: the remaining row was added last, or updated when it was the only one
    found = np.where(roles.kind[groups.last] == UPDATE, groups.last, groups.last_add)
    is_kept = np.zeros(len(found), bool)
    named = np.flatnonzero(whole)
    if not len(named):
        return found, is_kept
    brings, takes = named[roles.kind[named] != REMOVE], named[roles.kind[named] != ADD]
    content = _contents(rows, columns, roles, brings, takes)
    group = np.concatenate((roles.group[brings], roles.group[takes]))
    delta = np.concatenate((np.ones(len(brings), np.int64), np.full(len(takes), -1)))
    role = np.concatenate((brings, np.full(len(takes), -1)))
    order = np.lexsort((content, group))
    group, content, delta, role = group[order], content[order], delta[order], role[order]
    starts = np.flatnonzero(np.concatenate(([True], (group[1:] != group[:-1]) | (content[1:] != content[:-1]))))
    net, last, group = np.add.reduceat(delta, starts), np.maximum.reduceat(role, starts), group[starts]
    left = np.bincount(group[net > 0], minlength=len(found))
    lost = np.bincount(group[net != 0], minlength=len(found))
    is_one = (net == 1) & (left[group] == 1)
    found[group[is_one]] = last[is_one]
    is_kept[np.unique(group)] = True
    is_kept &= lost == 0
    return found, is_kept


def _contents(rows: pa.Table, columns: int, roles: Roles, brings: Ints, takes: Ints) -> Ints:
    """Equal numbers for equal rows: first of the added rows, then of the before-images of the removed ones."""
    own, old = pa.array(roles.row[brings]), pa.array(roles.row[takes])
    is_own = pa.array((roles.kind[takes] == REMOVE) & ~roles.leaves[takes])
    both = []
    for n in range(columns):
        row, image = array(rows, alias(n)), array(rows, before_alias(n))
        taken = pc.if_else(is_own, row.take(old), image.take(old))
        both.append(pa.concat_arrays([row.take(own), taken]))
    return key_codes(both)
