"""All scenarios of two-phase state, by mode and database, as one table of cases over the one function that decides.

Each is what a crash leaves behind: the committed place, the step that was open, and what the destination holds of it.
How the same is shown on real servers is in `tests/failures`: `test_recovery_rows_of_*`, `test_incremental_killed_…`,
`test_copies_killed_…`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.runtime.recovery import Action, Next, Saved, Step, decide, step_of

BEGIN, REPEAT, CLOSE = Action.BEGIN, Action.REPEAT, Action.CLOSE


@dataclass(frozen=True)
class Case:
    test_name: str
    saved: Saved[str]
    #: units of the open step that the destination holds
    held: set[str]
    wanted: set[str]
    action: Action
    start: str | None
    end: str | None = None
    #: to be done now
    units: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


# -- full refresh: a copy's chunks; it has no place before its first, and is its own end ------------------

_CHUNKS = ("1-1000", "1001-2000")


def _chunks(name: str, saved: Saved[str], held: set[str], action: Action, start: str | None, **kw: object) -> Case:
    units = kw.pop("units", set(_CHUNKS))
    return Case(f"full refresh {name}", saved, held, set(_CHUNKS), action, start, units=units, **kw)  # type: ignore[arg-type]


def _copy(*processing: str) -> Saved[str]:
    return Saved(None, Step("copy", frozenset(_CHUNKS), frozenset(processing), is_promised=True))


FULL_REFRESH = [
    _chunks("1: normal operation, before commit", _copy(*_CHUNKS), set(), REPEAT, None, end="copy"),
    _chunks("2: normal operation, after successful commit", _copy("1001-2000"), set(), REPEAT, None, end="copy",
            units={"1001-2000"}),
    _chunks("3: failure during processing, commit failed", _copy(*_CHUNKS), set(), REPEAT, None, end="copy"),
    _chunks("4: recovery, chunk already committed", _copy(*_CHUNKS), {"1-1000"}, REPEAT, None, end="copy",
            units={"1001-2000"}),
    _chunks("5: all chunks completed", _copy(), set(), CLOSE, "copy"),
]  # fmt: skip

# -- incremental: the end of a sync is promised, for a part of it may be published ------------------------

_T = {"public.table_1"}
_AT, _NEXT = "id=100, created_at=10:30", "id=150, created_at=11:00"


def _cursor(name: str, step: bool, held: set[str], action: Action, start: str, end: str | None = None) -> Case:
    open_ = step_of(_NEXT, "public.table_1", is_promised=True) if step else None
    committed = _AT if step else _NEXT
    return Case(f"incremental {name}", Saved(committed, open_), held, _T, action, start, end, units=_T)


INCREMENTAL = [
    _cursor("1: normal operation, before commit", True, set(), REPEAT, _AT, _NEXT),
    _cursor("2: normal operation, after successful commit", False, set(), BEGIN, _NEXT),
    _cursor("3: failure during processing, commit failed", True, set(), REPEAT, _AT, _NEXT),
    _cursor("4: recovery, thread already committed", True, _T, CLOSE, _NEXT),
    _cursor("5: recovery, thread not committed", True, set(), REPEAT, _AT, _NEXT),
]

# -- MySQL and PostgreSQL: one place for all streams ------------------------------------------------------

_ONE, _TWO = "public.table_1", "public.table_2"
_BOTH = {_ONE, _TWO}


def _global(at: str, next_: str, *processing: str, units: tuple[str, ...] = (_ONE, _TWO)) -> Saved[str]:
    return Saved(at, Step(next_, frozenset(units), frozenset(processing)))


def _log(database: str, at: str, end: str) -> list[Case]:
    """Five of them are the same for both."""
    name = f"{database} {{}}".format
    return [
        # nothing of it is at the destination: nothing of it is kept, and there may be more to read by now
        Case(name("1: normal operation, before commit"), _global(at, end, _ONE, _TWO), set(), _BOTH, BEGIN, at,
             units=_BOTH),
        Case(name("2: normal operation, after successful commit"), Saved(end), set(), _BOTH, BEGIN, end, units=_BOTH),
        Case(name("3: partial commit, some streams committed"), _global(at, end, _TWO), set(), _BOTH, REPEAT, at, end,
             {_TWO}),
        Case(name("4: recovery, all streams committed"), _global(at, end), set(), _BOTH, CLOSE, end, units=_BOTH),
        Case(name("5: recovery, some streams not committed (bounded sync)"), _global(at, end, _ONE, _TWO), {_ONE},
             _BOTH, REPEAT, at, end, {_TWO}),
    ]  # fmt: skip


MYSQL = _log("mysql", "mysql-bin.000070:772591", "mysql-bin.000070:800000")
POSTGRES = [
    *_log("postgres", "2D9/AD00445A", "2D9/AD005000"),
    Case("postgres 6: recovery, stream not found in streams list",
         _global("2D9/AD00445A", "2D9/AD005000", "public.old_table", units=(_ONE, _TWO, "public.old_table")), set(),
         _BOTH, CLOSE, "2D9/AD005000", units=_BOTH, gone={"public.old_table"}),
]  # fmt: skip

# -- MongoDB: a place for each stream, and each is asked about by itself ----------------------------------

_COLLECTION = {"collection_1"}
_DATA, _NEXT_DATA = "82673F82FE000000022B0429296E1404", "82673F82FE000000022B0429296E1505"
_OPEN = Saved(_DATA, step_of(_NEXT_DATA, "collection_1"))


def _token(name: str, saved: Saved[str], held: set[str], action: Action, start: str) -> Case:
    return Case(f"mongodb {name}", saved, held, _COLLECTION, action, start, units=_COLLECTION)


MONGODB = [
    _token("1: normal operation, before commit", _OPEN, set(), BEGIN, _DATA),
    _token("2: normal operation, after successful commit", Saved(_NEXT_DATA), set(), BEGIN, _NEXT_DATA),
    _token("3: failure during processing, commit failed", _OPEN, set(), BEGIN, _DATA),
    _token("4: recovery, thread already committed", _OPEN, _COLLECTION, CLOSE, _NEXT_DATA),
    _token("5: recovery, thread not committed, next_data set to a new target", _OPEN, set(), BEGIN, _DATA),
    _token("6: multiple streams, mixed states: the one with next_data", _OPEN, _COLLECTION, CLOSE, _NEXT_DATA),
    _token("6: multiple streams, mixed states: the one without", Saved(_DATA), set(), BEGIN, _DATA),
]

CASES = [*FULL_REFRESH, *INCREMENTAL, *MYSQL, *MONGODB, *POSTGRES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.test_name)
def test_what_is_done_next(case: Case) -> None:
    expected = Next(case.action, case.start, case.end, frozenset(case.units), frozenset(case.gone))
    assert decide(case.saved, case.held, case.wanted) == expected


def test_every_scenario_is_there() -> None:
    """As many as the document has for each; the last of MongoDB's is about two streams."""
    counts = [len(cases) for cases in (FULL_REFRESH, INCREMENTAL, MYSQL, MONGODB, POSTGRES)]
    assert counts == [5, 5, 5, 7, 6]


units = st.sets(st.sampled_from("abcd"), min_size=1)
steps = units.flatmap(
    lambda all_: st.builds(
        Step, st.just("end"), st.just(frozenset(all_)), st.frozensets(st.sampled_from(sorted(all_))), st.booleans()
    )
)


@given(steps, st.sets(st.sampled_from("abcd")), units)
def test_the_source_is_never_told_of_what_the_destination_lacks(
    step: Step[str], held: set[str], wanted: set[str]
) -> None:
    found = decide(Saved("start", step), held, wanted)
    lacking = (step.processing - held) & wanted
    assert (found.acknowledge == "end") == (not lacking)
    assert found.units <= wanted


@given(steps, units)
def test_doing_what_it_says_ends_with_the_step_closed(step: Step[str], wanted: set[str]) -> None:
    """However often it is killed in between: each time some more is held, and nothing is done twice."""
    held: set[str] = set()
    for _ in range(6):
        found = decide(Saved("start", step), held, wanted)
        if found.action is not Action.REPEAT:
            break
        assert not found.units & held
        held.add(min(found.units))
    else:
        pytest.fail("it never ends")
    assert found.action is Action.CLOSE or not held
