"""Collects the tables whose state is unknown from some order on, which are published as `Stale`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from lowwater.codec import generic
from lowwater.codec.varint import read_long
from lowwater.records.positions import Order
from lowwater.records.types import Copied, Stale
from lowwater_extractor.api import ChangeBatch, Frame, SourceTransaction
from lowwater_extractor.change_batch import IteratedChanges

#: tables in one record: ten thousand would exceed the maximum size of a message
TABLES_PER_RECORD = 500


class PendingStale:
    """Stale tables (table → reason) that must be published before any other record of the source."""

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
        """Remove all tables and return the records of them, which the caller must publish now."""
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
    """Return a `Stale` or `Copied` record as a change of a transaction; its `seq` is assigned by the publisher."""
    body = generic.encode(record)
    _, after_seq = read_long(body, 0)
    return header, body[after_seq:]


@dataclass(frozen=True)
class _Preceded(IteratedChanges):
    """`frames` followed by `changes`."""

    frames: Sequence[Frame]
    changes: ChangeBatch

    def __iter__(self) -> Iterator[Frame]:
        return chain(self.frames, self.changes)


def put_in_front(
    transactions: Sequence[SourceTransaction], frames: Sequence[Frame], published: Mapping[int, Order]
) -> list[SourceTransaction]:
    """Return the transactions, with `frames` prepended to the first unpublished one of each thread.

    Of each thread, because the merger decides which of these transactions is released first.
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
