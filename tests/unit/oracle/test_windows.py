"""LogMiner's windows: how far they reach, and which logs they need."""

from __future__ import annotations

import pytest

from lowwater.errors import LogGapError
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.discovery import Log
from lowwater_extractor.sources.oracle.logminer.session import Reach, choose_logs, oldest_scn, reach
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import Thread, ThreadSnapshot


def thread_of(number: int, *, sequence: int, last: int = 0, is_open: bool = True, enabled: int = 0) -> Thread:
    state = ThreadState.OPEN if is_open else ThreadState.CLOSED
    return Thread(number, state, True, sequence, Scn(enabled), Scn(last), f"db{number}")


def log_of(thread: int, sequence: int, first: int, next_: int | None, *, online: bool = False) -> Log:
    kind = "redo" if online else "arch"
    return Log(
        thread, sequence, Scn(first), None if next_ is None else Scn(next_), f"/{kind}/{thread}_{sequence}", online, 512
    )


def test_how_far_a_window_reaches() -> None:
    one = thread_of(1, sequence=5, last=200)
    assert reach(ThreadSnapshot(Scn(300), {1: one}), {}) == Reach(Scn(199), 1)
    # what is written last may be a log's first SCN only
    assert reach(ThreadSnapshot(Scn(300), {1: one}), {1: 250}) == Reach(Scn(249), 1)
    two = thread_of(2, sequence=5, last=150)
    assert reach(ThreadSnapshot(Scn(300), {1: one, 2: two}), {}) == Reach(Scn(149), 2)
    assert reach(ThreadSnapshot(Scn(300), {1: one, 2: thread_of(2, sequence=5, last=150, is_open=False)}), {}) == Reach(
        Scn(199), 1
    )
    assert reach(ThreadSnapshot(Scn(180), {1: one}), {}) == Reach(Scn(180), None)


def none_ended(thread: int, sequence: int) -> int | None:
    return None


def test_logs_are_chosen_without_gaps() -> None:
    logs = [log_of(1, 3, 10, 20), log_of(1, 4, 20, 30), log_of(1, 4, 20, 30, online=True)]
    logs.append(log_of(1, 5, 30, None, online=True))
    threads = {1: thread_of(1, sequence=5, last=50)}

    def chosen(low: int, high: int) -> list[str]:
        return [log.path for log in choose_logs("s", threads, logs, Scn(low), Scn(high), none_ended)]

    # of two files of one log the archived one
    assert chosen(10, 25) == ["/arch/1_3", "/arch/1_4"]
    assert chosen(19, 29) == ["/arch/1_4"]
    assert chosen(18, 29) == ["/arch/1_3", "/arch/1_4"]
    assert chosen(25, 40) == ["/arch/1_4", "/redo/1_5"]
    assert chosen(35, 40) == ["/redo/1_5"]
    # a log ends before its next SCN: 30 itself is in the next one
    assert chosen(20, 30) == ["/arch/1_4", "/redo/1_5"]
    with pytest.raises(LogGapError, match="log 2 of thread 1"):
        chosen(5, 40)
    del logs[1:3]
    with pytest.raises(LogGapError, match="log 4 of thread 1"):
        chosen(15, 40)


def test_a_thread_that_was_closed_for_long_needs_no_logs() -> None:
    closed = {1: thread_of(1, sequence=7, is_open=False)}
    assert choose_logs("s", closed, [log_of(1, 7, 10, 20, online=True)], Scn(30), Scn(50), none_ended) == []
    opened = {1: thread_of(1, sequence=8, last=60)}
    again = [log_of(1, 8, 45, None, online=True)]
    # log 7 is no longer listed, but the database remembers that it ended long before
    assert choose_logs("s", opened, again, Scn(30), Scn(50), lambda t, n: 20) == again
    with pytest.raises(LogGapError, match="log 7 of thread 1"):
        choose_logs("s", opened, again, Scn(30), Scn(50), lambda t, n: 40)
    new = {1: thread_of(1, sequence=1, last=60, enabled=45)}
    first = [log_of(1, 1, 45, None, online=True)]
    assert choose_logs("s", new, first, Scn(30), Scn(50), none_ended) == first
    assert choose_logs("s", new, first, Scn(30), Scn(40), none_ended) == []


def test_from_where_on_all_logs_are_there() -> None:
    threads = {1: thread_of(1, sequence=5, last=50), 2: thread_of(2, sequence=2, last=50, enabled=44)}
    logs = [log_of(1, 2, 5, 10), log_of(1, 4, 20, 30), log_of(1, 5, 30, None, online=True)]
    logs.append(log_of(2, 2, 44, None, online=True))
    assert oldest_scn(threads, logs) == 20
