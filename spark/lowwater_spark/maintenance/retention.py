"""Retention: replaces the changes of a table below a gsn with its state at that gsn.

The manifest removes the old changes of its tables, adds their states at that gsn, and contains the gsn from which on
history is retained. A crash between two manifests leaves a valid lake, and the next run continues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.read.state_plan import all_files
from lowwater.runtime.config import LakeConfig
from lowwater_spark.maintenance.compact import Compacted, Job, carry_out, plan_state
from lowwater_spark.maintenance.state_policy import STATE_POLICY, StatePolicy
from lowwater_spark.maintenance.tombstone_floor import gsn_before

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def retention_gsn(chain: Chain, config: LakeConfig, at_us: int, times: int = 1) -> int:
    """The last gsn older than `times` the retention period; 0 if all history is retained."""
    if config.retention_hours < 0 or not chain.head.n:
        return 0
    first = chain.first_after(at_us - int(times * config.retention_hours * 3600e6))
    if first is None:
        return chain.head.gsn
    return chain.manifest(first - 1).gsn if first > 1 else 0


def retain(
    spark: SparkSession | None,
    chain: Chain,
    config: LakeConfig,
    gsn: int,
    at_us: int,
    policy: StatePolicy = STATE_POLICY,
    *,
    overdue_gsn: int = 0,
) -> Compacted:
    """Folds files that lie wholly at or below `gsn`, if they have enough rows; those up to `overdue_gsn` in any case.

    Tables without a key cannot be folded, and are left as they are.
    """
    chain.refresh()
    gsn = min(max(gsn, chain.head.history_from), chain.head.gsn)
    if gsn <= 0:
        return Compacted()
    grace_gsn = gsn_before(chain, at_us - int(config.grace_hours * 3600e6))
    jobs = []
    for table in chain.tables():
        old = [file for file in all_files(chain, table, Layer.STREAM) if file.gsn_max <= gsn]
        is_overdue = any(file.gsn_max <= overdue_gsn for file in old)
        if is_overdue or sum(file.rows for file in old) >= policy.rows_min:
            job = _job(chain, table, gsn, old, grace_gsn, policy, is_overdue)
            jobs += [job] if job is not None else []
    return carry_out(spark, chain, config, jobs)


def _job(
    chain: Chain, table: str, gsn: int, old: list[File], grace_gsn: int, policy: StatePolicy, is_overdue: bool
) -> Job | None:
    item = plan_state(chain, table, gsn, grace_gsn, policy, force=is_overdue)
    if item is None:
        return None
    states = all_files(chain, table, Layer.STATE)
    removed = (*old, *(file for file in states if file.gsn_max <= gsn), *_folded_copies(chain, table, gsn))
    return Job(table, item, removed, frozenset(file.path for file in states), history_from=gsn)


def _folded_copies(chain: Chain, table: str, gsn: int) -> list[File]:
    """Files of copies whose rows are in the state, or were replaced by those of a later copy."""
    readable = {copied.copy_id for copied in chain.copied if table in copied.tables and copied.gsn <= gsn}
    return [file for file in all_files(chain, table, Layer.COPY) if file.copy_id in readable]
