"""The stream of one PostgreSQL database: whole committed transactions in the order of their commits' end.

**Marks.** The log is decoded in its own order, so the end of the last commit that came is a mark: nothing that
commits before it is still to come. So is a keepalive's `walEnd`: all before it has been decoded and sent. It is not
taken in the middle of a transaction. Both are also what is acknowledged, once Kafka holds it.

**A lost connection** ends the session, and the next begins at the position that Kafka holds: there is one way to
start. What was read of transactions that had not committed comes again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

from lowwater.errors import LogGapError
from lowwater.positions import U64_MAX, Order
from lowwater_extractor.source import Encoders, Polled, ThreadMark, ThreadState
from lowwater_extractor.sources.postgres import messages, metrics
from lowwater_extractor.sources.postgres.assemble import THREAD, Assembler
from lowwater_extractor.sources.postgres.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.postgres.config import PostgresConfig
from lowwater_extractor.sources.postgres.lsn import Lsn, format_lsn, parse_lsn
from lowwater_extractor.sources.postgres.relations import RelationMaker
from lowwater_extractor.sources.postgres.replication import Replication
from lowwater_extractor.sources.postgres.setup import Setup
from lowwater_extractor.spill import SpillSpace

FIGURES_SECONDS = 5.0

_FIGURES = """
SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8, restart_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8
FROM pg_replication_slots WHERE slot_name = %s"""
#: not transactional: it is in the log at once, and needs no transaction id
_HEARTBEAT = "SELECT pg_logical_emit_message(false, 'lowwater', 'heartbeat')"

_KEEPALIVE = 0x6B


def pack_resume(lsn: int, publications: str) -> bytes:
    """The place in the log, and the oids of the publications that it was read under, by name."""
    return f"{format_lsn(lsn)} {publications}".encode()


def unpack_resume(data: bytes) -> Lsn:
    return parse_lsn(data.decode().split(" ", 1)[0])


def publications_of(data: bytes) -> dict[str, int]:
    _, _, written = data.decode().partition(" ")
    found: dict[str, int] = json.loads(written or "{}")
    return found


class PostgresStream:
    def __init__(
        self,
        config: PostgresConfig,
        source: str,
        catalogue: DatabaseCatalogue,
        setup: Setup,
        encoders: Encoders,
        start: Lsn,
        *,
        announce: bool,
    ) -> None:
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._setup = setup
        self._slot = setup.slot
        self._publications = json.dumps(setup.known)
        self._announce = announce
        self._space = SpillSpace(config.spill_directory)
        self._replication = Replication(config, source, setup.slot, setup.publications, start)
        maker = RelationMaker(source, catalogue, encoders, frozenset(config.as_text))
        self.seen = maker.seen
        tick = self._replication.status
        self._assembler = Assembler(source, maker.relation, self._space, config.spill_bytes_max, tick)
        #: everything that commits up to here has been handed over
        self._read_to: int = start
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
        if THREAD not in held:
            self._read()
        self._replication.status()
        self._look_after()
        return self._polled()

    def _polled(self) -> Polled:
        assembler = self._assembler
        found, assembler.committed = assembler.committed, []
        resume = pack_resume(self._read_to, self._publications)
        at_end = self._is_empty and self._read_to >= self._server_end
        mark = ThreadMark(THREAD, Order.mark(self._read_to), resume, ThreadState.OPEN, at_end)
        return Polled(found, {THREAD: mark})

    def _read(self) -> None:
        """What has come, up to a limit."""
        found, self._is_empty = self._replication.receive(self._config.read_bytes)
        self._assembler.feed_all(found, self._not_data)
        self._read_to = max(self._read_to, self._assembler.end_lsn)

    def _not_data(self, message: bytes) -> None:
        if message[0] != _KEEPALIVE:
            raise messages.unknown(self._source, message, format_lsn(self._read_to))
        self._keepalive(messages.keepalive(message))

    def _keepalive(self, found: messages.Keepalive) -> None:
        if not self._assembler.is_inside:
            self._read_to = max(self._read_to, self._assembler.end_lsn, found.wal_end)
        if found.wants_reply:
            self._replication.status(now=True)

    def _look_after(self) -> None:
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
        self._setup.check_published()
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
        confirmed = unpack_resume(resumes[THREAD])
        if confirmed > self._replication.confirmed:
            self._replication.confirmed = confirmed
            self._replication.status()

    def close(self) -> None:
        self._replication.close()
        self._catalogue.close()
        self._space.close()
