"""From the steps of a failed run to few of them that fail the same way: delta debugging, bounded in time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from tests.differential.workload import Step

T = TypeVar("T")
Fails = Callable[[Sequence[Step]], bool]


def shrink(steps: Sequence[Step], fails: Fails, seconds: float) -> list[Step]:
    """Steps first, then the statements of those that are left. `steps` itself is taken to fail."""
    deadline = time.monotonic() + seconds
    kept = minimal(list(steps), fails, deadline)
    for at in range(len(kept) - 1, -1, -1):
        step = kept[at]
        if len(step.statements) < 2:
            continue

        def fails_with(statements: Sequence[object], at: int = at, step: Step = step) -> bool:
            return fails([*kept[:at], replace(step, statements=tuple(statements)), *kept[at + 1 :]])

        statements = minimal(list(step.statements), fails_with, deadline)
        kept[at] = replace(step, statements=tuple(statements))
    return kept


def minimal(items: list[T], fails: Callable[[list[T]], bool], deadline: float) -> list[T]:
    """Without any one more of them it would not fail; or as far as the time went."""
    size = max(1, len(items) // 2)
    while items:
        at = 0
        is_smaller = False
        while at < len(items):
            if time.monotonic() > deadline:
                return items
            fewer = items[:at] + items[at + size :]
            if fewer and fails(fewer):
                items, is_smaller = fewer, True
            else:
                at += size
        if size == 1 and not is_smaller:
            break
        size = max(1, min(size // 2, len(items)))
    return items
