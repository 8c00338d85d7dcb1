"""The stream of one PostgreSQL database: whole committed transactions in order of their commit's end LSN.

**Marks.** The server decodes the log in commit order, so the end LSN of the last received commit is a mark: no
transaction with a lower commit LSN follows. The `walEnd` of a keepalive is also a mark, because the server has decoded
and sent everything before it; it is ignored in the middle of a transaction. The slot is advanced to these positions
once they are durable in Kafka.

**Changes that are not in the log**, such as DDL, are detected by a query of the catalogue, which runs after
transactions are received and before they are returned by `poll` (`watch.py`). Tables that became stale before one of
these transactions committed are reported with or before that transaction.

**A lost connection** ends the session. The next session starts at the position stored in Kafka, and transactions that
had not committed are received again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from lowwater.errors import LogGapError
from lowwater.records.positions import U64_MAX, Order
from lowwater_extractor.api import Encoders, Polled, SourceTransaction, ThreadMark, ThreadState
from lowwater_extractor.modes import is_wanted
from lowwater_extractor.sources.postgres import metrics
from lowwater_extractor.sources.postgres.assembler import THREAD, Assembler
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.catalogue_watch.watch import Watch
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.position import Resume, SameLog, tables_print
from lowwater_extractor.sources.postgres.relations import VISIBLE_SECONDS_MAX, RelationMaker, wait_until_visible
from lowwater_extractor.sources.postgres.setup import Setup
from lowwater_extractor.sources.postgres.wire import messages
from lowwater_extractor.sources.postgres.wire.lsn import Lsn, format_lsn, parse_lsn
from lowwater_extractor.sources.postgres.wire.replication import Replication
from lowwater_extractor.spill import SpillSpace

FIGURES_SECONDS = 5.0
#: reads of `read_bytes` each that are allowed while transactions wait for the catalogue query
READS_MAX = 3
#: the next commit ends at least one WAL record header after a mark: the orders of the major directly after the mark,
#: this many, never belong to a commit
FREE_ORDERS = 1 << 32

_FIGURES = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8, restart_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8
FROM pg_replication_slots WHERE slot_name = %s"""
#: not transactional: it is written to the log immediately and assigns no transaction id
_HEARTBEAT = "SELECT pg_logical_emit_message(false, 'lowwater', 'heartbeat')"

_KEEPALIVE = 0x6B


class _Waiting(NamedTuple):
    """Received transactions that are held back until a catalogue query covers them."""

    transactions: list[SourceTransaction]
    #: every transaction that committed up to this LSN is in `transactions` or was returned before
    read_to: int
    #: up to where this session has read the log
    log_read_to: int
    since: float


class PostgresStream:
    def __init__(
        self,
        config: PostgresConfig,
        source: str,
        catalogue: DatabaseCatalogue,
        setup: Setup,
        encoders: Encoders,
        resume: Resume | None,
        begin: Lsn,
    ) -> None:
        """`begin`: the LSN that reading starts at; `resume`: the stored position, None at the first start."""
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._setup = setup
        self._slot = setup.slot
        self._announce = resume is None
        self._resume = Resume(begin, setup.publications.known, tables_print(config.tables))
        if resume is not None:
            self._resume = replace(self._resume, lsn=resume.lsn, last=resume.last, xid=resume.xid)
            is_same = resume.tables == self._resume.tables and resume.publications == self._resume.publications
            self._same = SameLog(source, self._resume, begin, is_same_config=is_same)
        else:
            self._same = SameLog(source, self._resume, begin, is_same_config=True)
        self._space = SpillSpace(config.spill_directory)
        self._watch = Watch(config, source, catalogue, setup, encoders.notes)
        try:
            self._replication = Replication(config, source, setup.slot, setup.publications.names, begin)
        except BaseException:
            self._watch.close()
            raise
        maker = RelationMaker(
            source, catalogue, encoders, frozenset(config.as_text), lambda name: is_wanted(config.tables, name)
        )
        self.seen = maker.seen
        tick = self._replication.status
        self._assembler = Assembler(source, maker.relation, self._space, config.spill_bytes_max, tick)
        #: every transaction that committed up to this LSN was received; those up to `_resume.lsn` were returned
        self._read_to: int = self._resume.lsn
        #: the same for this session, which starts to read at `begin`, before the stored position
        self._log_read_to: int = begin
        self._waiting: _Waiting | None = None
        self._reads = 0
        self._is_empty = False
        #: the end of the server's log at the last query
        self._server_end = U64_MAX
        now = time.monotonic()
        self._heartbeat_at = now
        self._figures_at = 0.0
        self._asked_at = 0.0

    def poll(self, held: frozenset[int]) -> Polled:
        if self._announce:
            # the first poll returns only the start position, so that it is durable before anything is read
            self._announce = False
            return self._polled()
        if THREAD not in held and self._reads < READS_MAX:
            self._read()
        self._replication.status()
        self._look_after()
        return self._polled()

    def _polled(self) -> Polled:
        found = self._looked_at()
        last, xid = (found[-1].order.major, found[-1].txid) if found else (self._resume.last, self._resume.xid)
        self._resume = replace(self._resume, last=last, xid=xid)
        to = self._resume.lsn
        at_end = self._is_empty and self._waiting is None and to >= self._server_end
        resume = self._resume.pack()
        mark = ThreadMark(THREAD, Order.mark(to), resume, ThreadState.OPEN, at_end, free_orders=FREE_ORDERS)
        return Polled(found, {THREAD: mark}, notes=self._watch.notes(), stale=self._watch.stale.found)

    def _looked_at(self) -> list[SourceTransaction]:
        """Return the transactions that the last catalogue query covers, and advance the position past them."""
        waiting = self._waiting
        if waiting is None:
            came, self._assembler.committed = self._assembler.committed, []
            waiting = _Waiting(came, self._read_to, self._log_read_to, time.monotonic())
            self._reads = 0
        shows = self._watch.covers.shows
        if any(not shows(int(transaction.txid)) for transaction in waiting.transactions):
            self._wait(waiting)
            return []
        self._waiting = None
        found = self._same.new(waiting.transactions, waiting.log_read_to)
        self._resume = replace(self._resume, lsn=Lsn(waiting.read_to))
        return found

    def _wait(self, waiting: _Waiting) -> None:
        self._waiting = waiting
        if time.monotonic() - waiting.since > VISIBLE_SECONDS_MAX:
            # raises if the transaction is still not visible
            wait_until_visible(self._catalogue, int(waiting.transactions[-1].txid), self._source)

    def _read(self) -> None:
        """Read and decode available messages, up to `read_bytes`."""
        self._reads += self._waiting is not None
        found, self._is_empty = self._replication.receive(self._config.read_bytes)
        self._assembler.feed_all(found, self._not_data)
        self._has_read(self._assembler.end_lsn)
        if named := self._assembler.take_named():
            self._watch.named(named)

    def _has_read(self, to: int) -> None:
        self._log_read_to = max(self._log_read_to, to)
        self._read_to = max(self._read_to, to)

    def _not_data(self, message: bytes) -> None:
        if message[0] != _KEEPALIVE:
            raise messages.unknown(self._source, message, format_lsn(self._read_to))
        self._keepalive(messages.keepalive(message))

    def _keepalive(self, found: messages.Keepalive) -> None:
        if not self._assembler.is_inside:
            self._has_read(max(self._assembler.end_lsn, found.wal_end))
        if found.wants_reply:
            self._replication.status(now=True)

    def _look_after(self) -> None:
        self._watch.poll(is_waited_for=self._waiting is not None)
        now = time.monotonic()
        if self._is_empty and now - self._asked_at >= self._config.end_check_seconds:
            self._asked_at = now
            ((end,),) = self._catalogue.ask("SELECT pg_current_wal_flush_lsn()::text")
            self._server_end = parse_lsn(end)
            # without a request the server rarely sends a keepalive with its position
            self._replication.status(now=True, wants_reply=True)
        if now - self._heartbeat_at >= self._config.heartbeat_seconds:
            self._heartbeat_at = now
            self._catalogue.ask(_HEARTBEAT)
        if now - self._figures_at >= FIGURES_SECONDS:
            self._figures_at = now
            self._figures()

    def _figures(self) -> None:
        self._setup.publications.check_there()
        rows = self._catalogue.ask(_FIGURES, self._slot)
        if not rows:
            raise LogGapError(f"slot {self._slot} was dropped", source=self._source, hint="see docs/postgres.md, slot")
        retained, restart, wal_status, lag = rows[0]
        if wal_status == "lost":
            raise LogGapError(
                f"slot {self._slot} was invalidated", source=self._source,
                hint="raise max_slot_wal_keep_size; reset the source's position, its tables are copied again",
            )  # fmt: skip
        metrics.RETAINED_BYTES.labels(self._source).set(retained)
        metrics.LAG_BYTES.labels(self._source).set(lag)
        metrics.RESTART_LSN.labels(self._source).set(parse_lsn(restart))
        metrics.RETAINED_ALARM.labels(self._source).set(retained > self._config.slot_bytes_alarm)

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        confirmed = Resume.unpack(resumes[THREAD]).lsn
        # the slot is not advanced until the log is known to be the one that was read before
        if self._same.is_passed and confirmed > self._replication.confirmed:
            self._replication.confirmed = confirmed
            self._replication.status()

    def close(self) -> None:
        self._replication.close()
        self._watch.close()
        self._catalogue.close()
        self._space.close()
