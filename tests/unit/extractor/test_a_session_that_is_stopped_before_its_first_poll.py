"""A fresh source that is stopped at once: no thread is known, so there is nothing that a database could be told."""

from __future__ import annotations

from unittest.mock import MagicMock

from lowwater.records.positions import Order
from lowwater_extractor.api import ThreadMark, ThreadState
from lowwater_extractor.session.loop import _Session


def _ended(marks: dict[int, ThreadMark]) -> MagicMock:
    extractor, publisher, stream, control = MagicMock(), MagicMock(marks=marks), MagicMock(), MagicMock()
    extractor.name, extractor.is_stopping = "s", True
    control.fold.excluded.return_value = frozenset()
    _Session(extractor, publisher, stream, MagicMock(), control, 1 << 20, None, MagicMock()).run(1.0)
    publisher.commit.assert_called_once()
    return stream


def test_nothing_is_acknowledged_where_no_thread_is_known() -> None:
    _ended({}).acknowledge.assert_not_called()


def test_else_every_thread_is() -> None:
    mark = ThreadMark(1, Order.mark(7), b"here", ThreadState.OPEN, True)
    _ended({1: mark}).acknowledge.assert_called_once_with({1: b"here"})
