"""Decides when a new state of a table is written."""

from __future__ import annotations

from dataclasses import dataclass

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.read.state_plan import all_files, plan_state
from lowwater_spark.maintenance.state_task import PIECE_BYTES, StateItem


@dataclass(frozen=True)
class StatePolicy:
    #: changes since the last state, as a share of its rows
    share: float = 0.25
    #: with fewer changes reads are fast without a new state
    rows_min: int = 10_000
    piece_bytes: int = PIECE_BYTES


STATE_POLICY = StatePolicy()


def state_item(chain: Chain, table: str, gsn: int, policy: StatePolicy, *, force: bool = False) -> StateItem | None:
    """The item that writes the state at `gsn`; None if the policy does not require it, or the table has no key.

    Raises LakeError if the table cannot be folded.
    """
    # a cheap check first, because a plan is expensive and there may be ten thousand tables
    if not force and _changed_at_most(chain, table, gsn) < max(1, policy.rows_min):
        return None
    if not any(version.table == table and version.key for version in chain.versions.values()):
        return None
    plan = plan_state(chain, table, gsn)
    if not plan.key:
        return None
    changed = sum(_rows_above(file, plan.floor) for file in plan.changes)
    is_worth = changed >= max(1, policy.rows_min) and changed > policy.share * sum(file.rows for file in plan.base)
    return StateItem(plan, forget_to=0, piece_bytes=policy.piece_bytes) if force or is_worth else None


def _changed_at_most(chain: Chain, table: str, gsn: int) -> float:
    folded = (f.gsn_max for f in all_files(chain, table, Layer.STATE) if f.gsn_max <= gsn)
    floor = max(folded, default=0)
    streams = [f for f in all_files(chain, table, Layer.STREAM) if f.gsn_min <= gsn and f.gsn_max > floor]
    return sum(_rows_above(file, floor) for file in streams)


def _rows_above(file: File, floor: int) -> float:
    """An estimate: merged files contain changes below the last state, too."""
    span = file.gsn_max - file.gsn_min + 1
    return file.rows * min(1.0, (file.gsn_max - floor) / span)
