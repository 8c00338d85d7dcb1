"""Operators' commands, each as a function that changes a control record. Pure: the CLI and the API write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lowwater.records.types import Control, CopyRequest, Exclusion, Skip, Wanted

Change = Callable[[Control], Control]

SOURCE, GROUP = "source", "group"
#: stands for all tables in a request for copies
ALL_TABLES = "*"


def want(wanted: Wanted, reason: str) -> Change:
    return lambda c: replace(c, wanted=wanted, reason=reason)


def restart(token: str, reason: str) -> Change:
    """Begin a new session, also if the service is paused, stopped or failed."""
    return lambda c: replace(c, wanted=Wanted.RUNNING, restart=token, reason=reason)


def retry(reason: str) -> Change:
    """Changes only the version, so that a service that stopped with an error tries again."""
    return lambda c: replace(c, reason=reason)


def configure(config: str, reason: str) -> Change:
    """Sets the config. A removed source or group is running again; a paused one stays paused."""

    def change(control: Control) -> Control:
        wanted = Wanted.RUNNING if control.wanted is Wanted.REMOVED else control.wanted
        return replace(control, config=config, wanted=wanted, reason=reason)

    return change


def remove(reason: str) -> Change:
    """Removes a source or group with its config and copy requests. Exclusions and skips of a group are retained."""
    return lambda c: replace(c, wanted=Wanted.REMOVED, config="", copies=(), reason=reason)


def copy(command: CopyRequest) -> Change:
    """Adds a request for a copy. It replaces earlier requests for the same table; one for all tables replaces all."""

    def change(control: Control) -> Control:
        kept = tuple(c for c in control.copies if command.table not in (c.table, ALL_TABLES))
        return replace(control, copies=(*kept, command), reason=command.reason)

    return change


def exclude(command: Exclusion) -> Change:
    def change(control: Control) -> Control:
        kept = _others(control, command.source, command.thread)
        return replace(control, exclusions=(*kept, command), reason=command.reason)

    return change


def include(source: str, thread: int, reason: str) -> Change:
    return lambda c: replace(c, exclusions=_others(c, source, thread), reason=reason)


def _others(control: Control, source: str, thread: int) -> tuple[Exclusion, ...]:
    return tuple(e for e in control.exclusions if (e.source, e.thread) != (source, thread))


def skip(command: Skip) -> Change:
    """Adds a request to skip a transaction. A repeated request replaces the earlier one."""

    def change(control: Control) -> Control:
        kept = tuple(
            s for s in control.skips if (s.source, s.thread, s.txid) != (command.source, command.thread, command.txid)
        )
        return replace(control, skips=(*kept, command), reason=command.reason)

    return change
