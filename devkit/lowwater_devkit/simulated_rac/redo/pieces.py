"""Row pieces: their places, and the changes of single pieces."""

from __future__ import annotations

from collections.abc import Sequence

from lowwater_devkit.simulated_rac.redo.cells import Cells, row_bytes, sizes_of
from lowwater_devkit.simulated_rac.redo.kdo import FIRST, GROUP_UPDATE, HEAD, ITL, LAST, Kdo, Place
from lowwater_devkit.simulated_rac.redo.pairs import (
    DELETE,
    INSERT,
    KDO_UNDO,
    SUPPLEMENT,
    UPDATE,
    Pair,
    Segment,
)

#: sizes of the fields of a supplemental group, and the fields
Group = tuple[Sequence[int], bytes]

_PLANS_KEPT = 10_000
#: flag of a group of a complete row
_GROUP_WHOLE = 0x10


class Plan:
    """The common data of all updates of the same columns of a piece."""

    __slots__ = ("extra", "extra_numbers", "extra_size", "lengths", "list_size", "numbers", "segment_column")

    def __init__(self, kdo: Kdo, first: int, changed: tuple[int, ...], extra: list[int]) -> None:
        self.list_size, self.numbers = kdo.words(changed)
        #: segment column of the first changed column, from 1
        self.segment_column = first + changed[0] + 1 if changed else 0
        #: columns that supplemental logging adds
        self.extra = extra
        self.extra_size, self.extra_numbers = kdo.words([first + at + 1 for at in extra])
        self.lengths = kdo.packer(len(extra))


class Pieces:
    """The places of a row's pieces, and the first column of each."""

    __slots__ = ("cuts", "kept", "places")

    def __init__(self, places: list[Place], cuts: list[int]) -> None:
        self.places = places
        self.cuts = cuts
        #: stored in the table's list, because the places do not follow from the key
        self.kept = len(cuts) > 1

    @property
    def is_migrated(self) -> bool:
        """Whether the head has no columns, and the row is in another block."""
        return self.cuts == [0, 0]

    def flags(self, at: int) -> int:
        """The flag byte of one piece."""
        last = len(self.places) - 1
        if self.is_migrated:
            return FIRST | LAST if at else HEAD
        return (HEAD | FIRST if at == 0 else 0) | (LAST if at == last else 0)


def piece_of(cells: Cells, cuts: list[int], at: int) -> Cells:
    return cells[cuts[at] : cuts[at + 1] if at + 1 < len(cuts) else None]


class PieceMaker:
    """Changes of single row pieces of one table, with their supplemental data."""

    def __init__(self, segment: Segment, kdo: Kdo, key: Sequence[int], supplemental: str) -> None:
        self._segment = segment
        self._kdo = kdo
        self._key = key
        self._supplemental = supplemental
        #: by the first column of the piece, its number of columns, and the changed columns
        self._plans: dict[tuple[int, int, tuple[int, ...]], Plan] = {}

    def insert(
        self,
        place: Place,
        cells: Cells,
        fb: int,
        after: Place | None,
        group: Group,
        head: Place | None = None,
        counts: bool = True,
    ) -> Pair:
        dba, slot = place
        sizes = sizes_of(cells)
        size, redo = self._kdo.insert(place, INSERT, fb, sizes, head if head != place else None, after, ITL)
        fields = b"".join([redo, *[cell[1] for cell in cells]])
        undo = self._kdo.delete(dba, slot, DELETE | KDO_UNDO)
        return Pair(self._segment, INSERT, dba, (size, *sizes), fields, (20,), undo, *group, int(counts))

    def delete(
        self, place: Place, cells: Cells, fb: int, after: Place | None, group: Group, counts: bool = True
    ) -> Pair:
        dba, slot = place
        sizes = sizes_of(cells)
        size, undo = self._kdo.insert(place, INSERT | KDO_UNDO, fb, sizes, None, after, 0)
        fields = b"".join([undo, *[cell[1] for cell in cells]])
        redo = self._kdo.delete(dba, slot, DELETE)
        return Pair(self._segment, DELETE, dba, (20,), redo, (size, *sizes), fields, *group, int(counts))

    def update(
        self, place: Place, head: Place, old: Cells, new: Cells, first: int, fb: int, mark: int, counts: bool
    ) -> Pair:
        """`old` and `new` are the columns of the piece; the first of them is column `first` of the row."""
        width = len(old)
        changed = tuple([at for at in range(width) if old[at] != new[at]]) or (0,)
        plan = self._plans.get((first, width, changed)) or self._plan(first, changed, width)
        gone, come = [old[at] for at in changed], [new[at] for at in changed]
        gone_sizes, come_sizes = sizes_of(gone), sizes_of(come)
        growth = row_bytes(come_sizes) - row_bytes(gone_sizes)
        size, undo = self._kdo.update(place, UPDATE | KDO_UNDO, fb, width, gone_sizes, -growth, 0)
        size, redo = self._kdo.update(place, UPDATE, fb, width, come_sizes, growth, ITL)
        more_sizes, more = self._update_group(plan, old, mark, head)
        return Pair(
            self._segment,
            UPDATE,
            place[0],
            (size, plan.list_size, *come_sizes),
            b"".join([redo, plan.numbers, *[cell[1] for cell in come]]),
            (size, plan.list_size, *gone_sizes),
            b"".join([undo, plan.numbers, *[cell[1] for cell in gone]]),
            more_sizes,
            more,
            int(counts),
        )

    def supplement(self, place: Place, head: Place, cells: Cells, first: int, mark: int, counts: bool) -> Pair:
        plan = self._plans.get((first, len(cells), ())) or self._plan(first, (), len(cells))
        group = self._update_group(plan, cells, mark, head)
        kdo = self._kdo
        redo, undo = kdo.bare(place[0], SUPPLEMENT), kdo.bare(place[0], SUPPLEMENT | KDO_UNDO)
        return Pair(self._segment, SUPPLEMENT, place[0], (16,), redo, (16,), undo, *group, int(counts))

    def _plan(self, first: int, changed: tuple[int, ...], count: int) -> Plan:
        if len(self._plans) > _PLANS_KEPT:
            self._plans.clear()
        extra = [at for at in self.wanted(first, count) if at not in changed]
        plan = self._plans[first, count, changed] = Plan(self._kdo, first, changed, extra)
        return plan

    # --- supplemental data

    def group(self, kind: int, before: int, after: int, mark: int = FIRST | LAST, head: Place | None = None) -> Group:
        if self._supplemental == "none":
            return (), b""
        fb = mark if kind == GROUP_UPDATE else mark | _GROUP_WHOLE
        return self._kdo.group(kind, fb, 0, before, after, head)

    def wanted(self, first: int, count: int) -> list[int]:
        """Indexes of the piece's columns that supplemental logging includes."""
        if self._supplemental == "none":
            return []
        if self._supplemental == "all":
            return list(range(count))
        return [at - first for at in self._key if first <= at < first + count]

    def _update_group(self, plan: Plan, old: Cells, mark: int, head: Place) -> Group:
        if self._supplemental == "none":
            return (), b""
        extra, at = plan.extra, plan.segment_column
        sizes, group = self._kdo.group(GROUP_UPDATE, mark, len(extra), at, at, head)
        if not extra:
            return sizes, group
        cells = [old[at] for at in extra]
        lengths = [cell[0] for cell in cells]
        parts = [group, plan.extra_numbers, plan.lengths(*lengths), *[cell[1] for cell in cells]]
        return (*sizes, plan.extra_size, plan.extra_size, *lengths), b"".join(parts)
