"""An event group of the log, with its changes."""

from __future__ import annotations

from lowwater_extractor.api import Frame
from lowwater_extractor.sources.mysql.wire.events import Gtid
from lowwater_extractor.transaction_buffer import TransactionBuffer


class Group:
    __slots__ = ("buffer", "gtid", "is_begun", "is_covered", "is_idle", "is_standalone", "is_xa", "stale", "tables",
                 "ts_us")  # fmt: skip

    def __init__(self, found: Gtid, buffer: TransactionBuffer[list[Frame]], *, is_covered: bool = False) -> None:
        self.gtid = found.gtid
        self.ts_us = found.commit_ts_us
        self.is_standalone = found.is_standalone
        self.is_begun = found.is_begun
        self.is_xa = found.is_xa
        self.is_idle = found.is_idle
        #: published before; read again only for its XA transactions
        self.is_covered = is_covered
        self.buffer = buffer
        #: tables that an XA transaction changes, captured or not
        self.tables: set[str] = set()
        #: table → reason, for tables whose rows change without row events
        self.stale: dict[str, str] = {}

    @property
    def is_kept(self) -> bool:
        return not self.is_covered or self.is_xa

    def emptied(self, buffer: TransactionBuffer[list[Frame]]) -> Group:
        """Return this group without its changes, which are held until XA COMMIT."""
        return Group(Gtid(self.gtid, self.ts_us), buffer, is_covered=self.is_covered)

    def with_changes(self, held: Group) -> Group:
        """Return this group with the changes of `held`."""
        made = Group(Gtid(self.gtid, self.ts_us), held.buffer, is_covered=self.is_covered)
        made.stale, made.tables = held.stale, held.tables
        return made
