"""Rows in pieces, and updates of the same columns."""

from __future__ import annotations

from lowwater_extractor.sources.simulated_rac.cells import Cells
from lowwater_extractor.sources.simulated_rac.kdo import FIRST, HEAD, LAST, Kdo, Place


class Plan:
    """What all updates of the same columns of a piece have in common."""

    __slots__ = ("extra", "extra_numbers", "extra_size", "lengths", "list_size", "numbers", "segment_column")

    def __init__(self, kdo: Kdo, first: int, changed: tuple[int, ...], extra: list[int]) -> None:
        self.list_size, self.numbers = kdo.words(changed)
        #: of the first changed column, from 1
        self.segment_column = first + changed[0] + 1 if changed else 0
        #: columns that supplemental logging adds
        self.extra = extra
        self.extra_size, self.extra_numbers = kdo.words([first + at + 1 for at in extra])
        self.lengths = kdo.packer(len(extra))


class Pieces:
    """Where the pieces of a row lie, and with which column each begins."""

    __slots__ = ("cuts", "kept", "places")

    def __init__(self, places: list[Place], cuts: list[int]) -> None:
        self.places = places
        self.cuts = cuts
        #: not where the row's key says
        self.kept = len(cuts) > 1

    @property
    def is_migrated(self) -> bool:
        """A head without columns, and all of the row elsewhere."""
        return self.cuts == [0, 0]

    def flags(self, at: int) -> int:
        """The flag byte of one of them."""
        last = len(self.places) - 1
        if self.is_migrated:
            return FIRST | LAST if at else HEAD
        return (HEAD | FIRST if at == 0 else 0) | (LAST if at == last else 0)


def piece_of(cells: Cells, cuts: list[int], at: int) -> Cells:
    return cells[cuts[at] : cuts[at + 1] if at + 1 < len(cuts) else None]
