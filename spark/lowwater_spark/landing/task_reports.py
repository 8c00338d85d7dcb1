"""Combines the reports of a landing's tasks: which transactions can land, and up to which offset. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowwater.errors import LandingError
from lowwater.records.types import Commit
from lowwater_spark.landing.land_task import (
    CARRY_BYTES_MAX,
    CARRY_ROWS_MAX,
    RowPlace,
    TaskReport,
    WrongRecordsError,
    check_follows,
)

_HINT = "a producer other than the merger wrote to the ordered topic, or it was misread; none of this was landed"


@dataclass
class Stitched:
    """The combined result of a micro-batch."""

    #: the last record that was read, and the last one that ends a transaction
    last: RowPlace | None = None
    last_end: RowPlace | None = None
    #: gsn of the transaction after the last end, and its rows; no rows if they are too many to be buffered
    open_gsn: int | None = None
    held: list[TaskReport] = field(default_factory=list)
    #: (report, its Commit): rows that a task returned, and whose Commit was in another task
    carried: list[tuple[TaskReport, Commit]] = field(default_factory=list)
    #: finished transactions that no task could buffer: run again with their commits
    needs_commits: set[int] = field(default_factory=set)
    needs_ids: set[int] = field(default_factory=set)

    @property
    def is_final(self) -> bool:
        return not self.needs_commits and not self.needs_ids


def stitch(reports: list[TaskReport], landed_gsn: int, known: dict[int, Commit]) -> Stitched:
    """Combines `reports`, which may be in any order. `landed_gsn`: the last gsn that has landed.

    Raises LandingError if the records have a gap, or a count or checksum does not match its Commit.
    """
    for report in reports:
        if report.wrong:
            raise LandingError(f"the ordered topic is wrong: {report.wrong}", hint=_HINT)
    full = sorted((r for r in reports if r.first is not None), key=lambda r: r.first.offset if r.first else 0)
    result = Stitched()
    if not full:
        return result
    _check_sequence(full, landed_gsn)
    ended = {**known, **{gsn: commit for r in full for gsn, commit in r.ended.items()}}
    result.last = full[-1].last
    result.last_end = max((r.last_end for r in full if r.last_end), key=lambda p: p.offset, default=None)
    if result.last is not None and not result.last.is_end:
        result.open_gsn = result.last.gsn
    result.needs_ids = {id_ for r in full for id_ in r.unknown_ids}
    result.needs_commits = {gsn for r in full for gsn in r.too_large} - set(known) - {result.open_gsn or 0}
    if result.is_final:
        _check_parts(full, ended, result)
        result.held = _held(full, result)
    return result


def _held(full: list[TaskReport], result: Stitched) -> list[TaskReport]:
    """The rows of the open transaction, as reports of tasks that read nothing else; empty if they are too many."""
    gsn, last = result.open_gsn, result.last
    if gsn is None or last is None or last.seq > CARRY_ROWS_MAX or any(gsn in r.too_large for r in full):
        return []
    parts = [r for r in full if r.carried and r.last is not None and r.last.gsn == gsn]
    if sum(len(r.carried) for r in parts) > CARRY_BYTES_MAX:
        return []
    return [
        TaskReport(
            first=r.carried_first,
            last=r.last,
            rows=r.carried_sums[0],
            value_bytes_max=r.value_bytes_max,
            carried=r.carried,
            carried_ids=r.carried_ids,
            carried_first=r.carried_first,
            carried_sums=r.carried_sums,
        )
        for r in parts
    ]


def _check_sequence(full: list[TaskReport], landed_gsn: int) -> None:
    before = RowPlace(-1, landed_gsn, 0, is_end=True)
    for report in full:
        assert report.first is not None
        assert report.last is not None
        try:
            check_follows(before, report.first)
        except WrongRecordsError as error:
            raise LandingError(f"the ordered topic has a gap: {error}", hint=_HINT) from None
        before = report.last


def _check_parts(full: list[TaskReport], ended: dict[int, Commit], result: Stitched) -> None:
    """Checks count and checksum of transactions that are spread over several tasks."""
    sums: dict[int, tuple[int, int]] = {}
    for report in full:
        for gsn, (rows, checksum) in report.parts.items():
            before = sums.get(gsn, (0, 0))
            sums[gsn] = (before[0] + rows, before[1] + checksum)
        if report.carried and report.last is not None and report.last.gsn != result.open_gsn:
            gsn = report.last.gsn
            result.carried.append((report, ended[gsn]))
            rows, checksum = report.carried_sums
            before = sums.get(gsn, (0, 0))
            sums[gsn] = (before[0] + rows, before[1] + checksum)
    for gsn, (rows, checksum) in sums.items():
        if gsn == result.open_gsn:
            continue
        commit = ended[gsn]
        if (rows, checksum) != (commit.changes, commit.checksum):
            raise LandingError(
                f"gsn {gsn} has {rows} changes with checksum {checksum}, its Commit says {commit.changes} "
                f"and {commit.checksum}",
                hint=_HINT,
            )
