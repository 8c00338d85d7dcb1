"""When a table's state is worth being folded anew."""

from __future__ import annotations

from dataclasses import dataclass

from lowwater.lake.chain import Chain
from lowwater.lake.manifest import File
from lowwater.lake.plan import StatePlan, plan_state
from lowwater_spark.state_task import PIECE_BYTES, StateItem


@dataclass(frozen=True)
class StatePolicy:
    #: changes since the last state, as a share of its rows
    share: float = 0.25
    #: below this many changes a reader is quick without
    rows_min: int = 10_000
    piece_bytes: int = PIECE_BYTES


STATE_POLICY = StatePolicy()


def state_item(chain: Chain, table: str, gsn: int, policy: StatePolicy) -> StateItem | None:
    """None where it is not worth it, or the table has no key. LakeError: the table cannot be folded."""
    if not any(version.table == table and version.key for version in chain.versions.values()):
        return None
    plan = plan_state(chain, table, gsn)
    if not plan.key:
        return None
    changed = sum(_rows_above(file, plan.floor) for file in plan.changes)
    if changed < max(1, policy.rows_min) or changed <= policy.share * sum(file.rows for file in plan.base):
        return None
    return StateItem(plan, forget_to=0, piece_bytes=policy.piece_bytes)


def is_first(plan: StatePlan) -> bool:
    return not plan.base and not plan.over


def _rows_above(file: File, floor: int) -> float:
    """About: merged files reach below the last state."""
    span = file.gsn_max - file.gsn_min + 1
    return file.rows * min(1.0, (file.gsn_max - floor) / span)
