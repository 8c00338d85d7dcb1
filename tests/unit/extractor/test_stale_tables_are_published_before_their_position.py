"""A statement that makes a table stale without a row in the log: a crash before that is published reads it again."""

from __future__ import annotations

from unittest.mock import MagicMock, PropertyMock, patch

import pytest

from lowwater.records.positions import ORDER_MIN, Order
from lowwater.records.types import Wanted
from lowwater_extractor.api import Polled, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.change_batch import FrameList
from lowwater_extractor.session.loop import _Session
from lowwater_extractor.snapshot.stale import PendingStale


def _session(stream: MagicMock, publisher: MagicMock, copies: MagicMock) -> _Session:
    extractor, control = MagicMock(), MagicMock()
    extractor.name, extractor.is_restarted = "s", False
    type(extractor).is_stopping = PropertyMock(side_effect=[False, True])
    extractor.wanted.return_value = Wanted.RUNNING
    control.fold.excluded.return_value = frozenset()
    copies.is_due.return_value = False
    return _Session(extractor, publisher, stream, MagicMock(), control, 1 << 20, copies, MagicMock())


def _committed(is_pending: bool) -> ThreadMark:
    """The mark that is published with a poll without transactions."""
    old = ThreadMark(1, Order.mark(5), b"old", ThreadState.OPEN, True)
    new = ThreadMark(1, Order.mark(7), b"new", ThreadState.OPEN, True)
    publisher, stream = MagicMock(marks={1: old}), MagicMock()
    stream.poll.return_value = Polled([], {1: new})
    copies = MagicMock()
    copies.pending_stale.__bool__.return_value = is_pending
    session = _session(stream, publisher, copies)
    with patch.object(session, "_show"):
        session.run(0.0)
    marks: dict[int, ThreadMark] = publisher.commit.call_args.args[0]
    return marks[1]


@pytest.mark.parametrize(("is_pending", "resume"), [(True, b"old"), (False, b"new")])
def test_position_stays_before_what_is_not_published(is_pending: bool, resume: bytes) -> None:
    mark = _committed(is_pending)
    assert (mark.order, mark.resume) == (Order.mark(7), resume)


def test_stale_tables_of_several_threads_come_before_what_a_lagging_thread_has_still_to_publish() -> None:
    """The first transaction of this poll is of the other thread: a lower one of the lagging thread may come later."""
    marks = {t: ThreadMark(t, Order.mark(5 * t), b"", ThreadState.OPEN, False) for t in (1, 2)}
    publisher, stream, copies = MagicMock(marks=marks, has_records=False, is_full=False), MagicMock(), MagicMock()
    publisher.published.return_value = ORDER_MIN
    publisher.add.return_value = 1
    later = SourceTransaction(2, "later", Order(20, 1), 0, FrameList([]), 0, 0)
    announced = SourceTransaction(1, "stale", Order(6, 0), 0, FrameList([]), 0, 0)
    stream.poll.return_value = Polled([later], marks)
    copies.pending_stale = PendingStale(b"")
    copies.pending_stale.add("s.t", "why")
    copies.announcement.side_effect = lambda *_: (copies.pending_stale.take(), announced)[1]
    session = _session(stream, publisher, copies)
    session._marks = dict(marks)
    with patch.object(session, "_show"):
        session.run(0.0)
    assert [call.args[0].txid for call in publisher.add.call_args_list] == ["stale", "later"]
