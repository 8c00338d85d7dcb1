"""A run without services: the source alone is read in this process, and what it says is compared with the database.

Kafka, merger, Spark and the lake are the same for every kind, and slow: this finds what is wrong with a kind itself,
thousands of statements a minute.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter
from collections.abc import Mapping

from lowwater.errors import LowwaterError, SourceLostError
from lowwater_extractor.api import Stream
from lowwater_extractor.sources import open_source
from tests.differential.model import Model
from tests.differential.workload import Kind, State, Step, shown

COME_SECONDS = 120.0
#: of all checks: the stream is closed and opened where it was
RESTART_SHARE = 0.1
RESET_SHARE = 0.02
#: as often, prepared transactions are left open over a check
OPEN_SHARE = 0.7
#: so many last steps may be the reason of a refusal: some are noticed at the next start only
STEPS_SHOWN = 12


class StreamRun:
    def __init__(self, kind: Kind, seed: int) -> None:
        self.kind = kind
        self.rng = random.Random(seed)
        self.steps: list[Step] = []
        self.statements = self.compared = self.restarts = self.copies = 0
        self.refusals: Counter[str] = Counter()
        self.refused_by_database: Counter[str] = Counter()
        self.last_reason: dict[str, str] = {}
        self.done: Counter[str] = Counter()
        self._number = 0
        self._refusable: list[Step] = []
        self._resumes: Mapping[int, bytes] = {}
        #: tables that there were once
        self._known: set[str] = set()
        self._open({})

    def __str__(self) -> str:
        lines = [
            f"{self._number} steps, {self.statements} statements, {self.compared} tables compared, "
            f"{self.copies} copies, {self.restarts} restarts, refusals: {dict(self.refusals)}",
            "done: " + ", ".join(f"{name} {count}" for name, count in sorted(self.done.items())),
        ]
        return "\n".join(
            [
                *lines,
                *(f"refused {n} {name}, as: {self.last_reason[name]}" for name, n in self.refused_by_database.items()),
            ]
        )

    def _open(self, resumes: Mapping[int, bytes]) -> None:
        source = open_source("s", self.kind.source_kind, {**self.kind.config(), "end_check_seconds": 0})
        if not resumes:
            self.model = Model(source)
        self.model.source = source
        self._stream: Stream = source.stream(resumes, {}, self.model.encoders)
        if not resumes:
            # where it begins
            self._poll()

    def _poll(self) -> bool:
        """Whether it has come to the end of the log."""
        try:
            polled = self._stream.poll(frozenset())
        except SourceLostError:
            # MySQL 8.0.12 dies of some statements, and is started again
            self.close()
            self._open(self._resumes)
            return False
        self.model.take(polled)
        self._resumes = {thread: mark.resume for thread, mark in polled.marks.items()}
        return all(mark.at_end for mark in polled.marks.values())

    def close(self) -> None:
        self._stream.close()

    def go(self, statements: int, check_every: int, grow_after: int) -> None:
        """`grow_after`: from then on the config names more tables, as `Kind.grow_config` has it."""
        state = self.kind.shapes()
        self.check()
        while self.statements < statements:
            if 0 < grow_after <= self.statements:
                grow_after = 0
                self.kind.grow_config()
                self._checked_or_refused(is_begun_again=True)
            step = self.kind.choose(self.rng, state)
            self._do(step)
            if self._number % check_every == 0:
                self._checked_or_refused()
            state = self.kind.shapes()
        self.kind.end_open()
        self._checked_or_refused()

    def _do(self, step: Step) -> None:
        self._number += 1
        self.statements += max(1, len(step.statements))
        self.steps = [*self.steps[-STEPS_SHOWN:], step]
        if step.refusals:
            self._refusable.append(step)
        if errors := self.kind.execute(step, self._number):
            self.refused_by_database[step.name] += 1
            self.last_reason[step.name] = errors[-1][:120]
        self.done[step.name] += 1

    def _checked_or_refused(self, is_begun_again: bool = False) -> None:
        if self.rng.random() > OPEN_SHARE:
            self.kind.end_open()
        pick = self.rng.random()
        is_restarted = pick < RESTART_SHARE
        is_begun_again = is_begun_again or RESTART_SHARE <= pick < RESTART_SHARE + RESET_SHARE
        while True:
            try:
                if is_begun_again:
                    self._reset()
                elif is_restarted:
                    self.restarts += 1
                    self._stream.close()
                    self._open(self._resumes)
                self.check()
                return
            except LowwaterError as error:
                self._after_refusal(error)
            # another step may be refused, too
            is_begun_again = True

    def _after_refusal(self, error: LowwaterError) -> None:
        said = f"{type(error).__name__}: {error.what}"
        reasons = [s for s in self._refusable if any(re.search(pattern, said) for pattern in s.refusals)]
        if not reasons:
            raise error
        self.refusals[re.sub(r"[^ ]*[.`\d][^ ]*", "…", said)[:100]] += 1
        self._refusable = [step for step in self._refusable if step not in reasons]
        # they hold locks
        self.kind.end_open()
        for repair in dict.fromkeys(step.repair for step in reasons):
            self._do(Step("repair", repair, is_atomic=False))

    def _reset(self) -> None:
        self.kind.end_open()
        self._stream.close()
        self._open({})

    # -- checks ------------------------------------------------------------------------------------------

    def check(self) -> None:
        self._number += 1
        self.kind.mark(2 * self._number)
        state = self.kind.state()
        if self.kind.marker not in self.model.tables:
            self._poll_until_read()
            self.copies += self.model.copy(self.kind.marker)
        deadline = time.monotonic() + COME_SECONDS
        while self._marker(state) != 2 * self._number:
            assert time.monotonic() < deadline, f"marker {2 * self._number} has not come, {self._marker(state)} has"
            self._poll()
        self._compare(state)

    def _poll_until_read(self) -> None:
        """All that was written before this call: the source asks by each poll where the log ends."""
        deadline = time.monotonic() + COME_SECONDS
        while not self._poll():
            assert time.monotonic() < deadline, "the end of the log has not come"

    def _marker(self, state: State) -> int | None:
        rows = self.model.rows(self.kind.marker, state[self.kind.marker])
        return self.kind.marker_of(state[self.kind.marker], next(iter(rows))) if len(rows) == 1 else None

    def _compare(self, state: State) -> None:
        copied = {table.full_name: table for table in self.model.source.tables_to_copy()}
        for name, wanted in state.items():
            if name not in self.model.tables:
                # a table without a key cannot be copied, and is not known
                if name not in copied:
                    continue
                assert self.model.copy(name), f"{name} is not copied"
                self.copies += 1
            found = self.model.rows(name, wanted)
            if found != wanted.rows:
                missing, extra = wanted.rows - found, found - wanted.rows
                raise AssertionError(
                    f"wrong data: {name} {wanted.columns}\n{missing.total()} missing, as {list(missing)[:3]}\n"
                    f"{extra.total()} not the database's, as {list(extra)[:3]}"
                )
            if name in copied:
                self.model.check_shape(copied[name])
            self.compared += 1
        for name in self._known - state.keys():
            assert not self.model.tables.get(name), f"{name} was dropped, and has rows"
        self._known |= state.keys()


def run_stream(kind: Kind, seed: int, statements: int, check_every: int = 10) -> StreamRun:
    """Half of the statements come before more tables are in the config. Raises with the seed and the last steps."""
    kind.set_up()
    run = StreamRun(kind, seed)
    try:
        run.go(statements, check_every, statements // 2)
    except (AssertionError, LowwaterError) as error:
        raise AssertionError(
            f"LOWWATER_SEED={seed}, after {run.statements} statements: {type(error).__name__}: {error}\n"
            f"last steps:\n{shown(run.steps)}"
        ) from error
    finally:
        run.close()
    return run
