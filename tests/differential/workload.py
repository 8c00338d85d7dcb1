"""Steps of a workload, how they are chosen, and what the database held after each of them. No I/O.

A step is data: statements that can be run again on another database, alone or with a part of the others. A statement
that the database refuses changes nothing there, so it need not be right: the database is the oracle.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

Row = tuple[Any, ...]


def _cut(statement: object, characters_max: int = 1500) -> str:
    text = str(statement)
    return text if len(text) <= characters_max else f"{text[:characters_max]}… ({len(text)} characters)"


@dataclass(frozen=True)
class Step:
    """`statements` mean something to their kind alone; `action` is one of the runner's (see `run.ACTIONS`)."""

    name: str
    statements: tuple[Any, ...] = ()
    #: all statements and the marker are one transaction; else each is its own, between two markers
    is_atomic: bool = True
    #: regular expressions over `Error: what`: the source may stop with one of these because of this step
    refusals: tuple[str, ...] = ()
    #: what an operator does in the database after such a refusal, before `source reset`
    repair: tuple[Any, ...] = ()
    action: str = ""

    def __str__(self) -> str:
        head = f"{self.name}{'' if self.is_atomic or self.action else ' (each by itself)'}:"
        return "\n         ".join([head, *map(_cut, self.statements)]) if self.statements else head + " " + self.action


@dataclass(frozen=True)
class TableState:
    """A table as the database has it: `rows` in canonical values, column by column."""

    columns: tuple[str, ...]
    rows: Counter[Row]
    #: of each column: turns a plain value of the lake into the canonical one
    from_lake: tuple[Callable[[Any], Any], ...] = field(compare=False, repr=False)
    #: what the generator needs to know of it beside the columns: key, types, foreign keys …
    about: Any = field(compare=False, repr=False, default=None)
    #: of a kind whose rows are not the lake's, column by column: makes canonical rows of the lake's
    rows_of_lake: Callable[[Any], Counter[Row]] | None = field(compare=False, repr=False, default=None)


State = Mapping[str, TableState]


def _is_same(before: TableState | None, now: TableState | None) -> bool:
    """Rows may be equal, and have other types: a number, and JSON that is one."""
    return before == now and (before is None or now is None or before.from_lake == now.from_lake)


class History:
    """What every table held at each marker.

    Step n writes marker 2n with its transaction. A step of several transactions writes 2n - 1 before them: with that
    marker only tables that the step has nothing to do with are known. Being the same before and after it is not enough:
    rows may come and go in between.
    """

    def __init__(self) -> None:
        self._of: dict[str, tuple[list[int], list[TableState | None]]] = {}
        #: (table, marker): the step before this marker has to do with it
        self._touched: set[tuple[str, int]] = set()

    def record(self, marker: int, state: State, touches: Callable[[str], bool] = lambda _: False) -> None:
        """`touches`: tables that the last step may have changed for a while."""
        for table in {*state, *self._of}:
            if touches(table):
                self._touched.add((table, marker))
            markers, states = self._of.setdefault(table, ([], []))
            now = state.get(table)
            # kinds give the same object again for what did not change
            if not states or (states[-1] is not now and not _is_same(states[-1], now)):
                markers.append(marker)
                states.append(now)

    def at(self, table: str, marker: int) -> TableState | None:
        """None: it was not there, or nobody knows what it held."""
        known = self._entry(table, marker - marker % 2)
        if marker % 2 and (known != self._entry(table, marker + 1) or (table, marker + 1) in self._touched):
            return None
        return None if known is None else self._of[table][1][known]

    def tables(self) -> list[str]:
        return sorted(self._of)

    def _entry(self, table: str, marker: int) -> int | None:
        markers, _ = self._of.get(table, ([], []))
        at = bisect_right(markers, marker) - 1
        return at if at >= 0 else None


Make = Callable[[Any, random.Random, State], Step | None]
M = TypeVar("M", bound=Make)


def makes(weight: float = 1.0) -> Callable[[M], M]:
    """Marks a kind's method that makes steps; of `weight` depends how often it is asked. None: not possible now."""

    def mark(make: M) -> M:
        make.weight = weight  # type: ignore[attr-defined]
        return make

    return mark


class Kind(ABC):
    """One database, what can be done to it, and how its values compare. A new one for each run."""

    #: `postgres18`: also the test's name
    name: str
    #: of the registry of sources
    source_kind: str
    #: names of methods whose steps the product does not stand yet
    NOT_YET: frozenset[str] = frozenset()
    #: its log does not name columns: one that is renamed or added, and dropped right after, leaves no trace
    columns_pass_unseen = False
    #: the docs say that a new table is captured from the next start on
    new_tables_need_restart = False
    #: else its rows are all in the log, and there is nothing to begin again with
    has_copies = True
    #: the marker's table, by its name in `State`
    marker: str

    @abstractmethod
    def set_up(self) -> None:
        """The first tables with some rows, and the marker."""

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Of the source; `grow_config` may have been called."""

    @abstractmethod
    def grow_config(self) -> None:
        """From now on the config names tables that it did not name before."""

    @abstractmethod
    def state(self) -> State:
        """Every captured table, as it is now."""

    def shapes(self) -> State:
        """The same, as far as steps are made of it: rows need not be read."""
        return self.state()

    @abstractmethod
    def execute(self, step: Step, number: int) -> list[str]:
        """Runs it with its markers; what the database refused."""

    @abstractmethod
    def mark(self, marker: int) -> None:
        """Writes the marker, in a transaction of its own."""

    @abstractmethod
    def version(self) -> str:
        """Of the server."""

    def marker_of(self, state: TableState, row: Row) -> int:
        """Out of the marker's one row."""
        return int(row[state.columns.index("n")])

    def may_refuse(self, said: str) -> Step | None:
        """A refusal that is right by what the database is, whatever step made it so: a step that has its `repair`."""
        return None

    def has_to_do_with(self, step: Step, table: str) -> bool:
        """Whether the step may change this table, also if it is the same afterwards."""
        return table.rpartition(".")[2] in "\n".join(map(str, step.statements))

    def is_dropped(self, table: str) -> bool:
        """There was such a table, and there is none now that the source is to capture. False: not looked at."""
        return False

    def lake_name(self, source: str, table: str) -> str:
        return f"{source}.{table}"

    def has_open(self) -> bool:
        """Transactions are prepared, and not ended: a copy may wait for them."""
        return False

    @abstractmethod
    def end_open(self) -> None:
        """Ends what a reset of the source would wait for: prepared transactions."""

    @abstractmethod
    def close(self) -> None:
        """Takes the database away."""

    def makers(self) -> dict[str, Make]:
        found = {name: getattr(type(self), name) for name in dir(type(self))}
        return {n: m for n, m in found.items() if hasattr(m, "weight") and n not in self.NOT_YET}

    def choose(self, rng: random.Random, state: State) -> Step:
        """The next step."""
        makers = self.makers()
        weights = [make.weight for make in makers.values()]  # type: ignore[attr-defined]
        while True:
            (make,) = rng.choices(list(makers.values()), weights)
            if (step := make(self, rng, state)) is not None:
                return step


#: the runner's own steps, with their weights: relative to about 30 of a kind's
FLEET_STEPS: Mapping[str, float] = {
    "kill extractor": 1.0,
    "restart extractor": 0.5,
    "kill merger": 0.7,
    "kill spark": 0.4,
    "reset source": 0.25,
    "grow config": 0.3,
    "copy a table": 0.6,
}
FLEET_SHARE = 0.04


def choose(kind: Kind, rng: random.Random, state: State, fleet_share: float = FLEET_SHARE) -> Step:
    names = [name for name in FLEET_STEPS if name not in kind.NOT_YET]
    if not kind.has_copies:
        names = [name for name in names if name.startswith(("kill", "restart"))]
    if names and rng.random() < fleet_share:
        (action,) = rng.choices(names, [FLEET_STEPS[name] for name in names])
        if action == "copy a table":
            return Step("copy a table", action=f"copy {rng.choice(sorted(state))}")
        return Step(action, action=action)
    return kind.choose(rng, state)


def shown(steps: Sequence[Step]) -> str:
    return "\n".join(f"{number:4} {step}" for number, step in enumerate(steps, 1))
