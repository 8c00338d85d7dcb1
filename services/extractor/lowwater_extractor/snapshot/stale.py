"""Tables whose state is not known from some place in the order on: collected here, and published as `Stale`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lowwater.codec import generic
from lowwater.codec.varint import read_long
from lowwater.records.positions import Order
from lowwater.records.types import Copied, Stale
from lowwater_extractor.api import Frame, SourceTransaction

#: so many tables are named by one record: ten thousand at once would not fit a message
TABLES_PER_RECORD = 500


class PendingStale:
    """What is to be published before anything else of this source: table → why."""

    def __init__(self, header: bytes) -> None:
        self._header = header
        self._reasons: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def add(self, table: str, reason: str) -> None:
        self._reasons.setdefault(table, reason)

    def discard(self, table: str) -> None:
        self._reasons.pop(table, None)

    def take(self) -> list[Frame]:
        """The records that say it all; they are the caller's to publish now."""
        by_reason: dict[str, list[str]] = {}
        for table, reason in self._reasons.items():
            by_reason.setdefault(reason, []).append(table)
        self._reasons = {}
        return [
            control_frame(self._header, Stale(0, tuple(tables[start : start + TABLES_PER_RECORD]), reason))
            for reason, tables in by_reason.items()
            for start in range(0, len(tables), TABLES_PER_RECORD)
        ]


def control_frame(header: bytes, record: Stale | Copied) -> Frame:
    """A record of ours as a change of a transaction: its `seq` is given when it is published, as that of all others."""
    body = generic.encode(record)
    _, after_seq = read_long(body, 0)
    return header, body[after_seq:]


@dataclass(frozen=True)
class _Preceded:
    """Changes after some frames of ours. Can be iterated more than once, as what it is made of can."""

    frames: Sequence[Frame]
    changes: Iterable[Frame]

    def __iter__(self) -> Iterator[Frame]:
        return chain(self.frames, self.changes)


def put_in_front(
    transactions: Sequence[SourceTransaction], frames: Sequence[Frame], published: Mapping[int, Order]
) -> list[SourceTransaction]:
    """With the frames in the first transaction of each thread that is not published yet.

    Of each thread: which of these transactions is released first is not decided here.
    """
    threads: set[int] = set()
    found = []
    size = sum(len(header) + len(body) for header, body in frames)
    for transaction in transactions:
        last = published.get(transaction.thread)
        if transaction.thread not in threads and (last is None or transaction.order > last):
            threads.add(transaction.thread)
            transaction = replace(
                transaction,
                changes=_Preceded(frames, transaction.changes),
                size_bytes=transaction.size_bytes + size,
                count=transaction.count + len(frames),
            )
        found.append(transaction)
    return found
