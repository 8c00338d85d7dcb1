"""What must hold of a commit before it may wait for its turn; each breach stops its source with an error of its own."""

from __future__ import annotations

from lowwater.errors import DuplicateIdError, LateError, MergeError, UnknownThreadError
from lowwater.records.types import Commit
from lowwater_merger.core.lanes import ReleaseKey
from lowwater_merger.core.release import SourceState
from lowwater_merger.core.watermark import PartitionMark


def check_place(
    state: SourceState, commit: Commit, key: ReleaseKey, mark: PartitionMark | None, partition: int
) -> None:
    """Its source, its thread and its place in the order."""
    if commit.source != state.name:
        raise _misplaced(MergeError, state, commit, f"a commit of source {commit.source}", "two sources share a topic")
    if mark is not None and commit.generation != mark.generation:
        what = f"transaction {commit.txid} of generation {commit.generation} after a mark of {mark.generation}"
        hint = "two extractors for one source? stop one, then restart the merger"
        raise _misplaced(MergeError, state, commit, what, hint)
    if mark is None or commit.thread not in mark.orders:
        what = f"transaction {commit.txid} of a thread that no mark has named"
        hint = "restart the extractor: it registers its threads before it publishes them"
        raise _misplaced(UnknownThreadError, state, commit, what, hint)
    late = None
    tail = state.lanes.lane(partition, commit.thread).tail_key
    if key < state.last_key:
        late = f"below {state.last_key.order}, which was released"
    elif commit.order <= mark.orders[commit.thread]:
        late = f"at or below its thread's own mark {mark.orders[commit.thread]}"
    elif tail is not None and key <= tail:
        late = f"behind a later commit of its own thread, {tail.order}"
    if late:
        what = f"transaction {commit.txid} came too late: {late}"
        hint = "skip this transaction if its changes may be left out; it can no longer be put into its place"
        raise _misplaced(LateError, state, commit, what, hint)


def _misplaced(error: type[MergeError], state: SourceState, commit: Commit, what: str, hint: str) -> MergeError:
    return error(what, source=state.name, thread=commit.thread, position=str(commit.order), hint=hint)


def check_same(state: SourceState, seen: Commit, commit: Commit) -> bool:
    """True: the same transaction once more while the first still waits. Another one under its id is an error."""
    if (seen.order, seen.changes, seen.checksum) == (commit.order, commit.changes, commit.checksum):
        return True
    what = f"transaction id {commit.txid} is in use twice: at {seen.order} and at {commit.order}"
    hint = "ids must be unique until released; was the source's position reset without its incarnation?"
    raise _misplaced(DuplicateIdError, state, commit, what, hint)
