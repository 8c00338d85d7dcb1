"""The operators' words of a group, obeyed in the core. Pure, so that the simulation can speak too."""

from __future__ import annotations

from lowwater.control.fold import ControlState
from lowwater_merger.core.merger import Merger


def obey(merger: Merger, wanted: ControlState, now_us: int) -> bool:
    """Bring the core to what is wanted; whether there was anything new.

    Compared with what the core has, not only by the version: a source may join after the command that names it.
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
            # whatever the word was, it was an operator's: what had stopped is tried again
            if state.error is not None:
                merger.retry(name)
    merger.control_version = wanted.version
    return True


def _has_new_skip(merger: Merger, wanted: ControlState) -> bool:
    """Skips live in the control topic only, so a new core must be given them again, but for those that were used."""
    return any(
        s.source in merger.sources
        and (s.thread, s.txid) not in merger.sources[s.source].skips
        and not merger.is_used(s)
        for s in wanted.control.skips
    )
