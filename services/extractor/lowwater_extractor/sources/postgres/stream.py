"""The stream of one PostgreSQL database: whole committed transactions in the order of their commits' end.

**Marks.** The log is decoded in its own order, so the end of the last commit that came is a mark: nothing that
commits before it is still to come. So is a keepalive's `walEnd`: all before it has been decoded and sent. It is not
taken in the middle of a transaction. Both are also what is acknowledged, once Kafka holds it.

**What the log does not tell** is looked for in the catalogue after transactions have come and before they are handed
over (`watch.py`): whatever was done before one of them committed is known by then, and said in front of it.

**A lost connection** ends the session, and the next begins at the position that Kafka holds: there is one way to
start. What was read of transactions that had not committed comes again.
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
#: so many times `read_bytes` are read while transactions wait for the catalogue
READS_MAX = 3
#: a commit ends at least a record's header after the last one: so many orders right after a mark are never a commit's
FREE_ORDERS = 1 << 32

_FIGURES = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8, restart_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8
FROM pg_replication_slots WHERE slot_name = %s"""
#: not transactional: it is in the log at once, and needs no transaction id
_HEARTBEAT = "SELECT pg_logical_emit_message(false, 'lowwater', 'heartbeat')"

_KEEPALIVE = 0x6B


class _Waiting(NamedTuple):
    """Transactions that have come, until the catalogue has been looked at."""

    transactions: list[SourceTransaction]
    #: everything that commits up to here is among them, or was handed over before
    read_to: int
    #: the same of this session's reading
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
        """`begin`: where the log is read from; `resume`: up to where it was read before, if it was."""
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
        #: everything that commits up to here has come; is it handed over, too, the resume says so
        self._read_to: int = self._resume.lsn
        #: the same of this session, which begins to read a little before that
        self._log_read_to: int = begin
        self._waiting: _Waiting | None = None
        self._reads = 0
        self._is_empty = False
        #: where the server's log ended when it was asked last
        self._server_end = U64_MAX
        now = time.monotonic()
        self._heartbeat_at = now
        self._figures_at = 0.0
        self._asked_at = 0.0

    def poll(self, held: frozenset[int]) -> Polled:
        if self._announce:
            # the position that capture begins at is durable before anything is read
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
        """Transactions whose doings the last look at the catalogue shows; the resume is moved after them."""
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
            # raises if it is still so
            wait_until_visible(self._catalogue, int(waiting.transactions[-1].txid), self._source)

    def _read(self) -> None:
        """What has come, up to a limit."""
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
            # it says by itself only now and then how far it has sent
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
                hint="raise max_slot_wal_keep_size; reset the source's position, its tables are copied anew",
            )  # fmt: skip
        metrics.RETAINED_BYTES.labels(self._source).set(retained)
        metrics.LAG_BYTES.labels(self._source).set(lag)
        metrics.RESTART_LSN.labels(self._source).set(parse_lsn(restart))
        metrics.RETAINED_ALARM.labels(self._source).set(retained > self._config.slot_bytes_alarm)

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        confirmed = Resume.unpack(resumes[THREAD]).lsn
        # until it is known to be the same log, nothing of it is let go
        if self._same.is_passed and confirmed > self._replication.confirmed:
            self._replication.confirmed = confirmed
            self._replication.status()

    def close(self) -> None:
        self._replication.close()
        self._watch.close()
        self._catalogue.close()
        self._space.close()
