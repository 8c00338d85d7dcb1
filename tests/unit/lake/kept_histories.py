"""Histories whose lake is compacted, folded and swept meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.lake_maker import LakeMaker
from tests.unit.lake.histories import COLUMNS, NAME, History, Row

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.read.verify import verify
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory
from lowwater.runtime.config import LakeConfig
from lowwater_spark.maintenance.compact import compact
from lowwater_spark.maintenance.retention import retain
from lowwater_spark.maintenance.state_policy import StatePolicy
from lowwater_spark.maintenance.sweep import sweep

_NEVER = StatePolicy(rows_min=1 << 60)
_MUCH_LATER = 10**18


class KeptHistory(History):
    """Its lake is kept in order meanwhile."""

    def __init__(self, directory: str, *more: Any, **options: Any) -> None:
        self.store = LocalDirectory(Path(directory))
        # copies show themselves at once here: they need no grace
        self.config = LakeConfig(uri=directory, grace_hours=0)
        super().__init__(LakeMaker(self.store), *more, **options)

    def _chain(self) -> Chain:
        self._land(0, 0, 0)
        return Chain.open(self.store)

    def _take_over(self, chain: Chain) -> None:
        chain.refresh()
        self.maker.n, self.maker._previous = chain.head.n, chain.head.digest
        self.history_from = chain.head.history_from

    def _compact(self, which: int, value: int, flags: int) -> None:
        """Merges only, or also a state; in one piece, or in many."""
        chain = self._chain()
        policy = _policy(value) if flags & 1 else _NEVER
        compact(None, chain, self.config, at_us=_MUCH_LATER, policy=policy)
        self._take_over(chain)

    def _below(self, which: int, value: int, flags: int) -> None:
        """Folds what retention has left."""
        chain = self._chain()
        compact(None, chain, self.config, fold=True, at_us=_MUCH_LATER, policy=_NEVER)
        self._take_over(chain)

    def _retain(self, which: int, value: int, flags: int) -> None:
        chain = self._chain()
        if self.known_from is not None and chain.head.gsn:
            # mostly not all of it
            gsn = max(0, chain.head.gsn - which)
            if gsn >= self.known_from:
                overdue = gsn if flags & 1 else 0
                retain(None, chain, self.config, gsn, _MUCH_LATER, _policy(value), overdue_gsn=overdue)
        self._take_over(chain)

    def _sweep(self, which: int, value: int, flags: int) -> None:
        chain = self._chain()
        sweep(chain, self.config, _MUCH_LATER)


def _policy(value: int) -> StatePolicy:
    return StatePolicy(share=0.0, rows_min=1, piece_bytes=4000 if value % 2 else 1 << 30)


def check(history: KeptHistory) -> None:
    lake = Lake(history.store)
    if not lake.gsn or NAME not in lake.names():
        return
    # the maker's first manifest may be a copy, of which it says that it landed
    assert [found.what for found in verify(history.store) if not found.rubbish and found.manifest != 1] == []
    for gsn in range(max(history.history_from, history.known_from or 0), lake.gsn + 1):
        if history.known_from is not None:
            rows = lake.state(NAME, gsn, allow_stale=True).rows()
            found = {(row["a"], row["b"]): whole(row) for row in rows}
            assert len(found) == len(rows), "one key twice"
            assert found == {key: whole(row) for key, row in history.states[gsn].items()}, f"at gsn {gsn}"
    after = history.history_from
    seen = lake.changes(NAME, after).arrow().select(["_gsn", "_seq", "_op"]).to_pylist()
    assert [tuple(row.values()) for row in seen] == [c[:3] for c in history.changes if c[0] > after]
    states: dict[int, int] = {}
    for file in all_files(lake.chain, NAME, Layer.STATE):
        states[file.gsn_max] = states.get(file.gsn_max, 0) + 1
    assert len(states) <= 3


def whole(row: Row) -> Row:
    return {name: row.get(name) for name in COLUMNS}
