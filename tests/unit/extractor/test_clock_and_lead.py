"""The source's clock never falls; the lead limit never holds the one that all wait for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lowwater.records.positions import Order
from lowwater_extractor.session.clock import SourceClock
from lowwater_extractor.session.lead_limit import LeadLimit

SECOND = 1_000_000


# -- clock -----------------------------------------------------------------------------------------------


def test_a_commits_clock_is_its_commit_time() -> None:
    assert SourceClock(0, 5 * SECOND).of_commit(1000, now_us=2000) == 1000


def test_commit_times_that_go_back_are_raised_above_the_last() -> None:
    clock = SourceClock(0, 5 * SECOND)
    assert [clock.of_commit(t, now_us=9000) for t in (1000, 400, 1001, 5000)] == [1000, 1001, 1002, 5000]


def test_a_commit_time_far_in_the_future_is_cut_and_counted() -> None:
    clock = SourceClock(0, 5 * SECOND)
    assert clock.of_commit(100 * SECOND, now_us=10 * SECOND) == 15 * SECOND
    assert clock.cut_total == 1
    assert clock.of_commit(15 * SECOND, now_us=10 * SECOND) == 15 * SECOND + 1, "never falling wins over the cut"


def test_a_mark_has_our_own_time_only_once_all_is_read() -> None:
    clock = SourceClock(0, 5 * SECOND)
    clock.of_commit(1000, now_us=2000)
    assert clock.of_mark(all_at_end=False, now_us=3000) == 1000
    assert clock.of_mark(all_at_end=True, now_us=3000) == 3000
    assert clock.of_mark(all_at_end=True, now_us=2500) == 3000, "our own clock may go back, too"
    assert clock.of_commit(1500, now_us=3100) == 3001, "what was marked is past"


def test_the_clock_goes_on_where_the_position_left_it() -> None:
    assert SourceClock(7000, 0).of_commit(5, now_us=10) == 7001


@given(st.integers(0, 10**6), st.lists(st.tuples(st.booleans(), st.integers(0, 10**7), st.integers(0, 10**7))))
def test_no_commit_is_at_or_below_what_was_said_before(start: int, steps: list[tuple[bool, int, int]]) -> None:
    clock = SourceClock(start, SECOND)
    said = start
    for is_commit, time_us, now_us in steps:
        if is_commit:
            now = clock.of_commit(time_us, now_us)
            assert now > said
            assert now <= max(said + 1, now_us + SECOND)
        else:
            now = clock.of_mark(bool(time_us % 2), now_us)
            assert now >= said
        said = now


# -- lead ------------------------------------------------------------------------------------------------


def _marks(**majors: int) -> dict[int, Order]:
    return {int(name[1:]): Order.mark(major) for name, major in majors.items()}


def test_a_thread_that_is_too_far_ahead_is_held_until_the_others_follow() -> None:
    lead = LeadLimit(1000)
    lead.published(1, Order(10, 1), 600)
    assert lead.held(_marks(t1=10, t2=5), set()) == frozenset()
    lead.published(1, Order(20, 1), 600)
    assert lead.held(_marks(t1=20, t2=5), set()) == {1}
    assert lead.lead_bytes(1) == 1200
    assert lead.held(_marks(t1=20, t2=10), set()) == frozenset(), "what the others have passed is no lead"
    assert lead.lead_bytes(1) == 600


def test_the_thread_with_the_lowest_mark_is_always_read() -> None:
    lead = LeadLimit(100)
    lead.published(1, Order(10, 1), 5000)
    assert lead.held(_marks(t1=7), set()) == frozenset(), "one thread alone"
    lead.published(2, Order(10, 1), 5000)
    assert lead.held(_marks(t1=7, t2=7, t3=9), set()) == frozenset(), "both hold the others"


def test_an_excluded_thread_is_not_waited_for() -> None:
    lead = LeadLimit(1000)
    lead.published(1, Order(10, 1), 5000)
    assert lead.held(_marks(t1=10, t2=5), {2}) == frozenset()
    assert lead.held(_marks(t1=10, t2=5), {1, 2}) == frozenset()
    lead.published(1, Order(30, 1), 5000)
    assert lead.held(_marks(t1=30, t2=5, t3=20), {2}) == {1}, "but for the third it is"


@given(
    st.integers(1, 2000),
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 300), st.integers(0, 4)), max_size=60),
)
def test_what_is_ahead_is_never_counted_too_low(limit: int, steps: list[tuple[int, int, int]]) -> None:
    """Entries are merged to bound the list: a merged one counts until the marks have passed all of it."""
    lead = LeadLimit(limit)
    published: dict[int, list[tuple[int, int]]] = {1: [], 2: [], 3: []}
    marks = {1: 0, 2: 0, 3: 0}
    for scn, (thread, size, follow) in enumerate(steps, 1):
        published[thread].append((scn, size))
        lead.published(thread, Order(scn, 1), size)
        marks[thread] = scn
        marks[1 + follow % 3] = max(marks[1 + follow % 3], scn - 3)
        held = lead.held({t: Order.mark(m) for t, m in marks.items()}, set())
        lowest = min(marks.values())
        for t, sent in published.items():
            ahead = sum(size for at, size in sent if at > lowest)
            assert ahead <= lead.lead_bytes(t) <= ahead + limit // 64
            assert marks[t] > lowest or t not in held
            assert t in held or marks[t] == lowest or ahead <= limit
