"""Marks, order and contents: what the runtime and the merger rest on."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import pytest
from tests.conformance.kit import PastTransaction, Reading, Setup, by_thread, published

from lowwater.records.positions import ORDER_MIN, Order
from lowwater_extractor.api import Polled


def _work_and_read(reading: Reading, pieces: int = 8) -> None:
    """Some commits, some polls, in turn; then to the end."""
    rng = random.Random(5)
    for _ in range(pieces):
        reading.setup.database.work(rng.randrange(1, 15))
        for _ in range(rng.randrange(4)):
            reading.poll()
    reading.drain()


def _all(setup: Setup) -> dict[int, list[PastTransaction]]:
    return by_thread(setup.database.history())


# -- marks -----------------------------------------------------------------------------------------------


def test_the_first_poll_of_a_fresh_stream_has_only_marks(setup: Setup) -> None:
    stream = setup.stream()
    setup.database.work(5)
    first = stream.poll(frozenset())
    assert first.transactions == []
    assert len(first.marks) == setup.kit.threads
    assert all(mark.resume for mark in first.marks.values())
    stream.close()


def test_every_poll_names_every_thread(reading: Reading) -> None:
    _work_and_read(reading)
    names = set(reading.polls[0].marks)
    assert len(names) == reading.setup.kit.threads
    for polled in reading.polls:
        assert set(polled.marks) == names
        assert all(mark.thread == thread for thread, mark in polled.marks.items())


def test_marks_never_go_back(reading: Reading) -> None:
    _work_and_read(reading)
    last: dict[int, Order] = {}
    for polled in reading.polls:
        for thread, mark in polled.marks.items():
            assert mark.order >= last.get(thread, ORDER_MIN)
            last[thread] = mark.order


def test_no_transaction_is_at_or_below_an_earlier_mark_of_its_thread(reading: Reading) -> None:
    _work_and_read(reading)
    marks: dict[int, Order] = {}
    for polled in reading.polls:
        for transaction in polled.transactions:
            assert transaction.order > marks[transaction.thread]
        marks = {thread: mark.order for thread, mark in polled.marks.items()}


def test_a_commit_has_a_minor_of_at_least_one_and_a_mark_the_largest(reading: Reading) -> None:
    _work_and_read(reading)
    assert all(t.order.minor >= 1 for t in reading.transactions)
    orders = [mark.order for polled in reading.polls for mark in polled.marks.values()]
    assert all(order == Order.mark(order.major) for order in orders)


def test_the_marks_pass_the_last_commit_once_all_is_read(reading: Reading) -> None:
    _work_and_read(reading)
    last = max(t.order for t in reading.transactions)
    assert min(mark.order for mark in reading.polls[-1].marks.values()) >= last


# -- order and contents ----------------------------------------------------------------------------------


def test_each_threads_transactions_come_in_commit_order_each_once_and_equal_the_history(reading: Reading) -> None:
    _work_and_read(reading)
    assert by_thread(reading.contents()) == _all(reading.setup)
    orders: dict[int, list[Order]] = {}
    for transaction in reading.transactions:
        orders.setdefault(transaction.thread, []).append(transaction.order)
    for found in orders.values():
        assert all(a < b for a, b in pairwise(found))


def test_by_order_and_thread_the_whole_source_has_the_historys_order(reading: Reading) -> None:
    _work_and_read(reading)
    ordered = sorted(reading.transactions, key=lambda t: (t.order, t.thread, t.txid))
    assert [(t.thread, t.txid) for t in ordered] == [(p.thread, p.txid) for p in reading.setup.database.history()]


def test_changes_can_be_iterated_twice_and_are_as_many_as_is_said(reading: Reading) -> None:
    reading.setup.database.work(20)
    while len(reading.transactions) < 20:
        for transaction in reading.poll().transactions:
            once, again = list(transaction.changes), list(transaction.changes)
            assert once == again
            assert len(once) == transaction.count > 0
            size = sum(len(header) + len(body) for header, body in once)
            assert transaction.size_bytes == pytest.approx(size, rel=1.0), "near enough for limits"


# -- resuming --------------------------------------------------------------------------------------------


@contextmanager
def _resumed(setup: Setup, polls: list[Polled]) -> Iterator[Reading]:
    """As after a crash right behind the last of these polls."""
    marks = polls[-1].marks
    stream = setup.stream({t: m.resume for t, m in marks.items()}, {t: m.order for t, m in marks.items()})
    try:
        yield Reading(setup, stream)
    finally:
        stream.close()


def _distinct(polls: list[Polled]) -> list[int]:
    """How many polls to resume behind: a poll that changed nothing is as good as the one before it."""
    resumes = [{t: m.resume for t, m in polled.marks.items()} for polled in polls]
    return [n + 1 for n in range(len(polls)) if n == 0 or resumes[n] != resumes[n - 1] or polls[n].transactions]


def test_resuming_from_any_poll_gives_exactly_the_rest(reading: Reading) -> None:
    _work_and_read(reading, pieces=4)
    setup = reading.setup
    everything = _all(setup)
    for number in _distinct(reading.polls):
        before = reading.polls[:number]
        orders = published(before)
        with _resumed(setup, before) as again:
            again.drain()
            found = zip(again.transactions, again.contents(), strict=True)
            rest = [past for t, past in found if t.order > orders.get(t.thread, ORDER_MIN)]
        given = [past for polled in reading.read[:number] for past in polled]
        assert by_thread([*given, *rest]) == everything, f"resumed from poll {number}"


def test_resuming_never_marks_below_what_was_marked(reading: Reading) -> None:
    _work_and_read(reading, pieces=4)
    for number in _distinct(reading.polls)[::3]:
        before = reading.polls[:number]
        with _resumed(reading.setup, before) as again:
            for thread, mark in again.poll().marks.items():
                assert mark.order >= before[-1].marks[thread].order


def test_resuming_in_the_middle_of_work_goes_on_with_it(reading: Reading) -> None:
    reading.setup.database.work(30)
    reading.drain()
    reading.setup.database.work(30)
    with _resumed(reading.setup, reading.polls) as again:
        again.drain()
        rest = again.contents()
    given = reading.contents()
    assert by_thread([*given, *(t for t in rest if t not in given)]) == _all(reading.setup)


# -- held threads, acknowledgement -----------------------------------------------------------------------


def test_a_held_thread_is_not_read_on_and_nothing_is_lost_by_it(reading: Reading) -> None:
    setup = reading.setup
    threads = sorted(reading.polls[0].marks)
    if len(threads) < 2:
        pytest.skip("with one thread nobody can be ahead")
    rng = random.Random(3)
    for _ in range(30):
        setup.database.work(2)
        reading.poll(held=frozenset(rng.sample(threads, len(threads) - 1)))
    held = frozenset(threads[1:])
    setup.database.work(20)
    for _ in range(5):
        assert not all(mark.at_end for thread, mark in reading.poll(held).marks.items() if thread in held)
    reading.drain()
    assert by_thread(reading.contents()) == _all(setup)


def test_acknowledging_what_is_durable_disturbs_neither_this_stream_nor_a_later_one(reading: Reading) -> None:
    setup = reading.setup
    for _ in range(5):
        setup.database.work(10)
        polled = reading.poll()
        reading.stream.acknowledge({t: m.resume for t, m in polled.marks.items()})
    reading.stream.close()
    with _resumed(setup, reading.polls) as again:
        again.drain()
        given, rest = reading.contents(), again.contents()
    assert by_thread([*given, *(t for t in rest if t not in given)]) == _all(setup)


def test_closing_lets_go_of_the_database(setup: Setup) -> None:
    for _ in range(3):
        stream = setup.stream()
        stream.poll(frozenset())
        stream.close()
    setup.database.work(3)
    reading = Reading(setup, setup.stream())
    reading.drain()
    assert bool(reading.transactions) is not setup.kit.begins_now, "capture begins at its start"
    reading.stream.close()
