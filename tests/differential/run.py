"""One run: steps on the database, and after every few of them the lake is compared with it.

Accepted for a table at a gsn: it is equal; or an error of ours says that it cannot be read there, which must end by
itself at the newest gsn. A source may stop with a refusal that its step names; after `source reset` all is equal again.
"""

from __future__ import annotations

import random
import re
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lowwater.errors import LakeError
from tests.differential.compare import difference, rows_of, without
from tests.differential.fleet import OneSource
from tests.differential.workload import History, Kind, State, Step, choose

#: how long the lake may take to pass the server's position, and a table to become readable again
LAND_SECONDS = 180.0
READABLE_SECONDS = 180.0
NOT_READABLE = "not readable"
#: with transactions that are prepared and open: a copy may wait for them
OPEN_SECONDS = 6.0
#: each gsn is looked at in so many tables: more gsns find more than more tables do
TABLES_PER_VERSION = 8
#: a table that the lake does not know for so long is given the restart that the docs ask for
RESTART_SECONDS = 5.0


#: for each check, on average: a refusal that comes again after its repair and a reset would never end
REFUSALS_MAX = 5


class DifferentialError(AssertionError):
    """`category` is what a shrunk run must fail with, too; `table` the one that is wrong, if it is one."""

    def __init__(self, category: str, what: str, table: str = "") -> None:
        super().__init__(f"{category}: {what}")
        self.category, self.table = category, table


@dataclass
class Report:
    """What a run did, for its last line."""

    steps: int = 0
    statements: int = 0
    checks: int = 0
    tables_compared: int = 0
    versions_compared: int = 0
    #: as of a gsn between something that is in no log, and its being noticed
    #: states that the lake said it could not give
    unreadable: Counter[str] = field(default_factory=Counter)
    refusals: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    refused_by_database: Counter[str] = field(default_factory=Counter)
    #: the last reason for each
    reasons: dict[str, str] = field(default_factory=dict)
    #: where the time went
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, what: str) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self.seconds[what] = self.seconds.get(what, 0.0) + time.monotonic() - started

    def progress(self) -> str:
        return f"{self.steps} steps, {self.statements} statements, {self.checks} checks"

    def __str__(self) -> str:
        lines = [
            f"{self.progress()}: {self.tables_compared} tables at the newest gsn and {self.versions_compared} at older "
            f"ones compared, {self.unreadable.total()} older not readable, {len(self.refusals)} refusals",
            "seconds: " + ", ".join(f"{what} {seconds:.1f}" for what, seconds in self.seconds.items()),
            "done: " + ", ".join(f"{name} {count}" for name, count in sorted(self.done.items())),
        ]
        lines += [f"refused {count} of {count + self.done[name]} {name}, as: {self.reasons[name]}"
                  for name, count in sorted(self.refused_by_database.items())]  # fmt: skip
        lines += [f"refusal: {refusal}" for refusal in self.refusals]
        lines += [f"not readable ({count}): {what}" for what, count in self.unreadable.most_common(8)]
        return "\n".join(lines)


class Run:
    """`steps` is what was done so far: it can be run again."""

    def __init__(self, kind: Kind, fleet: OneSource, seed: int) -> None:
        self.kind, self.fleet = kind, fleet
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.report = Report()
        self._history = History()
        self._state: State = {}
        self._number = 0
        self._last_gsn = 0
        #: markers at which the newest state was compared
        self._checked: list[int] = []
        self._since_check = 0
        self._refusable: list[Step] = []
        self._started = time.monotonic()

    def begin(self) -> None:
        self._state = self.kind.state()
        self._history.record(0, self._state)

    # -- steps -------------------------------------------------------------------------------------------

    def chosen(self, statements: int, fleet_share: float) -> Iterator[Step]:
        """Until so many statements were run."""
        while self.report.statements < statements:
            yield choose(self.kind, self.rng, self._state, fleet_share)

    def go(self, steps: Iterator[Step], check_every: int, versions: int) -> None:
        """`versions`: so many older gsns are looked at by each check."""
        for step in steps:
            self.do(step)
            if self._since_check >= check_every:
                self.check(versions)
        self._end_open()
        self.check(versions)

    def do(self, step: Step) -> None:
        self.steps.append(step)
        self._number += 1
        self._since_check += 1
        if step.refusals:
            self._refusable.append(step)
        self.report.steps += 1
        self.report.statements += max(1, len(step.statements))
        if step.action:
            with self.report.timed(step.name):
                self._act(step.action)
            self.report.done[step.name] += 1
            return
        with self.report.timed("statements"):
            errors = self.kind.execute(step, self._number)
        if errors:
            self.report.refused_by_database[step.name] += 1
            self.report.reasons[step.name] = errors[-1][:150]
        else:
            self.report.done[step.name] += 1
        self._record(lambda table: self.kind.has_to_do_with(step, table))

    def _record(self, touches: Callable[[str], bool] = lambda _: False) -> None:
        with self.report.timed("reading the database"):
            self._state = self.kind.state()
            self._history.record(2 * self._number, self._state, touches)

    def _act(self, action: str) -> None:
        verb, _, what = action.partition(" ")
        if verb == "kill":
            self.fleet.kill(what)
        elif verb == "restart":
            self.fleet.restart(what)
        elif verb == "copy":
            if what in self._state:
                self.fleet.copy(what)
        elif action == "grow config":
            self.kind.grow_config()
            self.fleet.change_config(self.kind.config())
            self._record()
        elif action == "reset source":
            self._reset()
        else:
            raise ValueError(f"unknown action {action!r}")

    def _reset(self) -> None:
        self._end_open()
        self.fleet.reset()

    def _end_open(self) -> None:
        """As a step of its own: what it commits belongs to none before."""
        self._number += 1
        self.kind.mark(2 * self._number - 1)
        self.kind.end_open()
        self.kind.mark(2 * self._number)
        self._record()

    # -- checks ------------------------------------------------------------------------------------------

    def check(self, versions: int) -> None:
        """Newest state and some older ones, once the lake has passed all that was done."""
        while (refusal := self._passed_and_equal()) is not None:
            with self.report.timed("refusals"):
                self._after_refusal(refusal)
        self._checked.append(2 * self._number)
        with self.report.timed("older"):
            self._compare_older(versions)
        self._since_check = 0
        self.report.checks += 1
        print(f"{self.report.progress()}, {time.monotonic() - self._started:.0f} s", flush=True)

    def _passed_and_equal(self) -> str | None:
        """What the source has refused instead."""
        with self.report.timed("passing"):
            refusal = self._pass()
        if refusal is not None:
            return refusal
        with self.report.timed("newest"):
            try:
                return self._compare_newest(OPEN_SECONDS if self.kind.has_open() else READABLE_SECONDS)
            except DifferentialError as error:
                if error.category != NOT_READABLE or not self.kind.has_open():
                    raise
        # a copy may wait for a prepared transaction
        self._end_open()
        return self._pass() or self._compare_newest(READABLE_SECONDS)

    def _pass(self) -> str | None:
        """Waits until the lake has passed the marker; what the source has refused instead."""
        stopped: dict[str, dict[str, Any]] = {}
        # the marker's own copy may wait for a prepared transaction: those are left open for a while, and then ended
        is_waiting = self.kind.has_open() and self._marker() is None
        for seconds in (OPEN_SECONDS if is_waiting else LAND_SECONDS / 3, LAND_SECONDS):
            self._number += 1
            wanted = 2 * self._number
            self.kind.mark(wanted)
            self._record()

            landed = 0

            def has_passed(wanted: int = wanted) -> bool:
                nonlocal landed
                lake = self.fleet.lake()
                # most of the time nothing has landed since
                if lake is not None and lake.chain.head.n != landed:
                    landed = lake.chain.head.n
                    if self._marker() == wanted:
                        return True
                stopped.update(self.fleet.errors())
                return bool(stopped)

            try:
                self._wait(f"the lake to pass marker {wanted}", has_passed, seconds, "stalled")
                break
            except DifferentialError:
                if seconds == LAND_SECONDS:
                    raise
                self._end_open()
        return self._refusal(stopped)

    def _refusal(self, stopped: dict[str, dict[str, Any]]) -> str | None:
        """What the extractor has refused, if a step allows it."""
        for part, error in stopped.items():
            said = f"{error['error']}: {error['what']}"
            if part == "extractor" and self._may_refuse(said):
                return said
            raise DifferentialError("stopped", f"{part} stopped with {said} (hint: {error.get('hint')})")
        return None

    def _may_refuse(self, said: str) -> list[Step]:
        """Those that may be the reason: some are noticed only with a later change, or at the next start."""
        found = [step for step in self._refusable if any(re.search(pattern, said) for pattern in step.refusals)]
        return found + [step for step in [self.kind.may_refuse(said)] if step is not None]

    def _after_refusal(self, refusal: str) -> None:
        self.report.refusals.append(refusal)
        reasons = self._may_refuse(refusal)
        self._refusable = [step for step in self._refusable if step not in reasons]
        if len(self.report.refusals) > REFUSALS_MAX * max(1, self.report.checks):
            raise DifferentialError("refused again and again", refusal)
        # what is prepared holds locks
        self._end_open()
        for step in reasons:
            if step.repair:
                self._number += 1
                repair = Step(f"repair of {step.name}", step.repair, is_atomic=False)
                self.kind.execute(repair, self._number)
                # the source may go on meanwhile, if only a copy was refused
                self._record(partial(self.kind.has_to_do_with, repair))
        self._reset()

    def _marker(self, gsn: int | None = None) -> int | None:
        """None: the marker's own table cannot be read there."""
        try:
            found = self.fleet.read(self.kind.lake_name(self.fleet.source, self.kind.marker), gsn)
        except LakeError:
            return None
        rows = rows_of(found, self._state[self.kind.marker])
        if len(rows) != 1:
            return None
        return self.kind.marker_of(self._state[self.kind.marker], next(iter(rows)))

    def _compare_newest(self, seconds: float) -> str | None:
        """What the source has refused meanwhile: then not all is readable."""
        reasons: dict[str, str] = {}
        refusals: list[str] = []
        # nothing is written meanwhile: what was equal stays so
        equal: set[str] = set()
        started, restarts = time.monotonic(), 0

        def is_all_readable() -> bool:
            nonlocal restarts
            reasons.clear()
            for table, wanted in self._state.items():
                if table in equal:
                    continue
                try:
                    found = self.fleet.read(self.kind.lake_name(self.fleet.source, table))
                except LakeError as error:
                    reasons[table] = str(error)
                    continue
                if differs := difference(found, wanted):
                    raise DifferentialError("wrong data", f"{table} at the newest gsn: {differs}", table)
                equal.add(table)
                self.report.tables_compared += 1
            for table in self._history.tables():
                if table not in self._state and self.kind.is_dropped(table):
                    self._look_at_dropped(table)
            found_refusals = [self._refusal(self.fleet.errors())]
            found_refusals += [said for said in self.fleet.copy_errors() if self._may_refuse(said)]
            if refusal := next(filter(None, found_refusals), None):
                refusals.append(refusal)
                return True
            if reasons and self.kind.new_tables_need_restart and not restarts:
                restarts += time.monotonic() - started > RESTART_SECONDS
                if restarts:
                    self.fleet.restart("extractor")
            return not reasons

        self._wait("all tables to be readable", is_all_readable, seconds, NOT_READABLE, reasons)
        return refusals[0] if refusals else None

    def _look_at_dropped(self, table: str) -> None:
        """It has no rows, or the lake says that it is not known."""
        try:
            found = self.fleet.read(self.kind.lake_name(self.fleet.source, table))
        except LakeError:
            return
        if found.num_rows:
            raise DifferentialError("wrong data", f"{table} was dropped, the lake has {found.num_rows} rows", table)

    def _compare_older(self, versions: int) -> None:
        lake = self.fleet.lake()
        assert lake is not None
        new = range(self._last_gsn + 1, lake.gsn + 1)
        old = range(1, self._last_gsn + 1)
        gsns = {*self.rng.sample(new, min(versions, len(new))), *self.rng.sample(old, min(versions // 4, len(old)))}
        for gsn in sorted(gsns):
            self._compare_at(gsn)
        self._last_gsn = lake.gsn

    def _compare_at(self, gsn: int) -> None:
        marker = self._marker(gsn)
        if marker is None:
            self.report.unreadable["the marker"] += 1
            return
        known = [(table, self._history.at(table, marker)) for table in self._history.tables()]
        there = [(table, wanted) for table, wanted in known if wanted is not None]
        for table, wanted in self.rng.sample(there, min(TABLES_PER_VERSION, len(there))):
            try:
                found = self.fleet.read(self.kind.lake_name(self.fleet.source, table), gsn)
            except LakeError as error:
                self.report.unreadable[re.sub(r"[^ ]*\d[^ ]*", "…", str(error))[:150]] += 1
                continue
            if (differs := difference(found, wanted)) and self.kind.columns_pass_unseen:
                differs = difference(found, without(wanted, self._passing_columns(table, marker)))
            if differs:
                raise DifferentialError("wrong data", f"{table} as of gsn {gsn}, marker {marker}: {differs}", table)
            self.report.versions_compared += 1

    def _passing_columns(self, table: str, marker: int) -> set[str]:
        """Columns that it had at neither of the two checks around the marker: they may have come and gone unseen."""
        at = bisect_right(self._checked, marker)
        around = [self._checked[at - 1] if at else 0, *self._checked[at : at + 1]]
        states = [self._history.at(table, number) for number in (marker, *around)]
        now, *others = ({*state.columns} if state is not None else set() for state in states)
        return now.difference(*others)

    def _wait(
        self, what: str, check: Callable[[], bool], seconds: float, category: str,
        details: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        try:
            self.fleet.wait(what, check, seconds)
        except DifferentialError:
            raise
        except AssertionError as error:
            more = f"{error}; {details or ''}; services: {self.fleet.states()}; {self.fleet.fleet.log_tails()}"
            raise DifferentialError(category, more) from error


def replay(run: Run, steps: Sequence[Step], versions: int) -> None:
    run.begin()
    run.go(iter(steps), check_every=1 << 30, versions=versions)
