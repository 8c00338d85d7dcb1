"""One run of maintenance: retention, compaction, sweep. Called by the landing application and by the CLI."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lowwater.lake.chain.chain import Chain, TableSummary
from lowwater.runtime.config import LakeConfig
from lowwater_spark.maintenance.compact import compact
from lowwater_spark.maintenance.retention import retain, retention_gsn
from lowwater_spark.maintenance.state_policy import STATE_POLICY, StatePolicy
from lowwater_spark.maintenance.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Maintained:
    """Live files before and after, and files deleted from the store."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    swept_files: int
    swept_bytes: int
    #: numbers of the manifests that were written
    manifests: tuple[int, ...]


def maintain(
    spark: SparkSession | None,
    chain: Chain,
    config: LakeConfig,
    now_us: int,
    policy: StatePolicy = STATE_POLICY,
) -> Maintained:
    """Runs maintenance once, without Spark in this process. No other thread may use the chain."""
    chain.refresh()
    before = _live(chain)
    # first, so that no file is merged that retention removes. Changes twice as old as the retention are folded in any
    # case: a table with few changes is then folded once in that time, and not at every run
    old, overdue = (retention_gsn(chain, config, now_us, times) for times in (1, 2))
    retained = retain(spark, chain, config, old, now_us, policy, overdue_gsn=overdue)
    compacted = compact(spark, chain, config, at_us=now_us, policy=policy)
    swept = sweep(chain, config, now_us)
    after = _live(chain)
    manifests = retained.manifests + compacted.manifests
    return Maintained(before.files, after.files, before.bytes, after.bytes, swept.files, swept.bytes, manifests)


def _live(chain: Chain) -> TableSummary:
    total = TableSummary()
    for table in chain.tables():
        total = total.plus(chain.summary(table))
    return total
