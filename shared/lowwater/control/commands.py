"""Operators' commands, each as a change of a control record. Pure: the command line and the API write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lowwater.records.types import Control, CopyRequest, Exclusion, Skip, Wanted

Change = Callable[[Control], Control]

SOURCE, GROUP = "source", "group"
#: in the place of a table's name, in a request for copies
ALL_TABLES = "*"


def want(wanted: Wanted, reason: str) -> Change:
    return lambda c: replace(c, wanted=wanted, reason=reason)


def restart(token: str, reason: str) -> Change:
    """Its session begins anew, also if it was paused, stopped or had failed."""
    return lambda c: replace(c, wanted=Wanted.RUNNING, restart=token, reason=reason)


def retry(reason: str) -> Change:
    """Nothing is changed but the version: what had stopped for an error is tried again."""
    return lambda c: replace(c, reason=reason)


def configure(config: str, reason: str) -> Change:
    """What was removed comes back; what is paused stays so."""

    def change(control: Control) -> Control:
        wanted = Wanted.RUNNING if control.wanted is Wanted.REMOVED else control.wanted
        return replace(control, config=config, wanted=wanted, reason=reason)

    return change


def remove(reason: str) -> Change:
    """Its config and the words about its tables go with it; a group's exclusions and skips stay recorded."""
    return lambda c: replace(c, wanted=Wanted.REMOVED, config="", copies=(), reason=reason)


def copy(word: CopyRequest) -> Change:
    """The last word about a table counts; one about all tables takes the place of those before it."""

    def change(control: Control) -> Control:
        kept = tuple(c for c in control.copies if word.table not in (c.table, ALL_TABLES))
        return replace(control, copies=(*kept, word), reason=word.reason)

    return change


def exclude(word: Exclusion) -> Change:
    def change(control: Control) -> Control:
        kept = _others(control, word.source, word.thread)
        return replace(control, exclusions=(*kept, word), reason=word.reason)

    return change


def include(source: str, thread: int, reason: str) -> Change:
    return lambda c: replace(c, exclusions=_others(c, source, thread), reason=reason)


def _others(control: Control, source: str, thread: int) -> tuple[Exclusion, ...]:
    return tuple(e for e in control.exclusions if (e.source, e.thread) != (source, thread))


def skip(word: Skip) -> Change:
    """Said twice, it is there once."""

    def change(control: Control) -> Control:
        kept = tuple(s for s in control.skips if (s.source, s.thread, s.txid) != (word.source, word.thread, word.txid))
        return replace(control, skips=(*kept, word), reason=word.reason)

    return change
