"""A statement that makes a table stale without a row in the log: a crash before that is published reads it again."""

from __future__ import annotations

from unittest.mock import MagicMock, PropertyMock, patch

import pytest

from lowwater.records.positions import Order
from lowwater.records.types import Wanted
from lowwater_extractor.api import Polled, ThreadMark, ThreadState
from lowwater_extractor.session.loop import _Session


def _committed(is_pending: bool) -> ThreadMark:
    """The mark that is published with a poll without transactions."""
    old = ThreadMark(1, Order.mark(5), b"old", ThreadState.OPEN, True)
    new = ThreadMark(1, Order.mark(7), b"new", ThreadState.OPEN, True)
    extractor, publisher, stream, control = MagicMock(), MagicMock(marks={1: old}), MagicMock(), MagicMock()
    extractor.name, extractor.is_restarted = "s", False
    type(extractor).is_stopping = PropertyMock(side_effect=[False, True])
    extractor.wanted.return_value = Wanted.RUNNING
    control.fold.excluded.return_value = frozenset()
    stream.poll.return_value = Polled([], {1: new})
    copies = MagicMock()
    copies.pending_stale.__bool__.return_value = is_pending
    copies.is_due.return_value = False
    session = _Session(extractor, publisher, stream, MagicMock(), control, 1 << 20, copies, MagicMock())
    with patch.object(session, "_show"):
        session.run(0.0)
    marks: dict[int, ThreadMark] = publisher.commit.call_args.args[0]
    return marks[1]


@pytest.mark.parametrize(("is_pending", "resume"), [(True, b"old"), (False, b"new")])
def test_position_stays_before_what_is_not_published(is_pending: bool, resume: bytes) -> None:
    mark = _committed(is_pending)
    assert (mark.order, mark.resume) == (Order.mark(7), resume)
