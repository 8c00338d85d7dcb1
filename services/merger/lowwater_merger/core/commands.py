"""Applies the operator commands of a group to the core. Pure, so that the simulation can use it."""

from __future__ import annotations

from lowwater.control.fold import ControlState
from lowwater_merger.core.merger import Merger


def obey(merger: Merger, wanted: ControlState, now_us: int) -> bool:
    """Apply the commands in `wanted` to the core. Returns whether anything changed.

    Exclusions and skips are compared with the core's state, not only by version: a source may join after the command
    that names it.
    """
    control = wanted.control
    excluded = {(e.source, e.thread): e.reason for e in control.exclusions if e.source in merger.sources}
    current = {(name, thread) for name, state in merger.sources.items() for thread in state.excluded}
    is_same = wanted.version == merger.control_version and excluded.keys() == current
    if is_same and not _has_new_skip(merger, wanted):
        return False
    for (source, thread), reason in sorted(excluded.items()):
        if (source, thread) not in current:
            merger.exclude(source, thread, reason, now_us)
    for source, thread in sorted(current - set(excluded)):
        merger.include(source, thread, control.reason, now_us)
    for skip in control.skips:
        if skip.source in merger.sources:
            merger.skip(skip)
    if wanted.version != merger.control_version:
        for name, state in list(merger.sources.items()):
            # any operator command for the group also retries its stopped sources
            if state.error is not None:
                merger.retry(name)
    merger.control_version = wanted.version
    return True


def _has_new_skip(merger: Merger, wanted: ControlState) -> bool:
    """Whether there is a skip that the core does not have. Unused skips are only in the control topic, not in the
    progress."""
    return any(
        s.source in merger.sources
        and (s.thread, s.txid) not in merger.sources[s.source].skips
        and not merger.is_used(s)
        for s in wanted.control.skips
    )
