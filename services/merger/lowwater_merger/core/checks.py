"""Checks of a commit before its transaction may wait for release. Each failure stops the source with its own error."""

from __future__ import annotations

from lowwater.errors import DuplicateIdError, LateError, MergeError, UnknownThreadError
from lowwater.records.types import Commit
from lowwater_merger.core.lanes import ReleaseKey
from lowwater_merger.core.release import SourceState
from lowwater_merger.core.watermark import PartitionMark


def check_place(
    state: SourceState, commit: Commit, key: ReleaseKey, mark: PartitionMark | None, partition: int
) -> None:
    """Check the commit's source, generation, thread and order.

    Raises MergeError, UnknownThreadError or LateError.
    """
    if commit.source != state.name:
        raise _misplaced(MergeError, state, commit, f"a commit of source {commit.source}", "two sources share a topic")
    if mark is not None and commit.generation != mark.generation:
        what = f"transaction {commit.txid} of generation {commit.generation} after a mark of {mark.generation}"
        hint = "if two extractors run for one source, stop one, then restart the merger"
        raise _misplaced(MergeError, state, commit, what, hint)
    if mark is None or commit.thread not in mark.orders:
        what = f"transaction {commit.txid} of a thread that is not in any mark"
        hint = "restart the extractor: it registers its threads before it publishes them"
        raise _misplaced(UnknownThreadError, state, commit, what, hint)
    late = None
    tail = state.lanes.lane(partition, commit.thread).tail_key
    if key < state.last_key:
        late = f"below {state.last_key.order}, which was released"
    elif commit.order <= mark.orders[commit.thread]:
        late = f"at or below the mark of its thread, {mark.orders[commit.thread]}"
    elif tail is not None and key <= tail:
        late = f"after a later commit of the same thread, {tail.order}"
    if late:
        what = f"transaction {commit.txid} came too late: {late}"
        hint = "it can no longer be released in order; skip this transaction only if its changes may be lost"
        raise _misplaced(LateError, state, commit, what, hint)


def _misplaced(error: type[MergeError], state: SourceState, commit: Commit, what: str, hint: str) -> MergeError:
    return error(what, source=state.name, thread=commit.thread, position=str(commit.order), hint=hint)


def check_same(state: SourceState, seen: Commit, commit: Commit) -> bool:
    """True if `commit` repeats `seen`, which still waits. Raises DuplicateIdError if it is another transaction with the
    same id."""
    if (seen.order, seen.changes, seen.checksum) == (commit.order, commit.changes, commit.checksum):
        return True
    what = f"transaction id {commit.txid} is used twice: at {seen.order} and at {commit.order}"
    hint = "ids must be unique until released; check whether the source's position was reset without its incarnation"
    raise _misplaced(DuplicateIdError, state, commit, what, hint)
