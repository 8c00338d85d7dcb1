"""The stream of one server: whole committed transactions in binary log order.

**Marks.** The log is read sequentially by one thread, so the count of the last event group is a mark. While the server
is idle the mark advances periodically, so that finished copies get an order of their own.

**A lost connection** ends the session. The next session starts at the position stored in Kafka, on the same server or,
with GTIDs, on another one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from lowwater.errors import IncarnationError, LogUnknownError
from lowwater.records.positions import Order
from lowwater_extractor.api import Encoders, Polled, ThreadMark, ThreadState
from lowwater_extractor.modes import is_wanted
from lowwater_extractor.sources.mysql import metrics
from lowwater_extractor.sources.mysql.assembler import THREAD, Assembler
from lowwater_extractor.sources.mysql.catalogue import DatabaseCatalogue
from lowwater_extractor.sources.mysql.config import MysqlConfig
from lowwater_extractor.sources.mysql.ddl.altered_tables import AlteredTables
from lowwater_extractor.sources.mysql.ddl.apply import Ddl, Keys
from lowwater_extractor.sources.mysql.ddl.statements import Xid
from lowwater_extractor.sources.mysql.position import Place, Resume
from lowwater_extractor.sources.mysql.relations import RelationMaker
from lowwater_extractor.sources.mysql.server import log_end
from lowwater_extractor.sources.mysql.setup import AHEAD, ahead_of, prepared, wanted_of
from lowwater_extractor.sources.mysql.wire.charsets import Decoders
from lowwater_extractor.sources.mysql.wire.replication import Replication
from lowwater_extractor.sources.mysql.xa import EndedWithoutLog
from lowwater_extractor.spill import SpillSpace

#: how often the mark of an idle server advances
MOVE_SECONDS = 1.0
#: limits, in bytes and time, for reading ahead to find the end of an XA transaction before transactions are returned
XA_WAIT_BYTES_MAX = 32 << 20
XA_WAIT_SECONDS_MAX = 2.0
XA_WAIT_SECONDS = 0.02


class MysqlStream:
    def __init__(
        self, config: MysqlConfig, source: str, catalogue: DatabaseCatalogue, encoders: Encoders, resume: Resume, *,
        announce: bool, keys: Keys | None = None,
    ) -> None:  # fmt: skip
        self._config = config
        self._source = source
        self._catalogue = catalogue
        self._announce = announce
        self._before = resume
        self._space = SpillSpace(config.spill_directory)
        server = catalogue.server
        wanted = wanted_of(config)
        maker = RelationMaker(
            source,
            catalogue,
            Decoders(catalogue),
            encoders,
            wanted,
            lambda name: is_wanted(config.tables, name),
            is_mariadb=server.is_mariadb,
            version=server.version_text,
            needs_key=config.without_key == "refuse",
            is_copied=config.copy_tables,
        )
        self.seen = maker.seen
        #: GTIDs of transactions that may be published but are after the durable position
        self._ahead = ahead_of(encoders.notes, resume)
        self._stale = AlteredTables(source, encoders.notes)
        self._assembler = Assembler(
            source, maker, self._space, config.spill_bytes_max, resume,
            is_mariadb=server.is_mariadb, ahead=self._ahead,
            leaves_out=config.xa_at_start == "leave_out",
            ddl=Ddl(maker, self._stale, keys, is_lower=server.get("lower_case_table_names") == "1"),
        )  # fmt: skip
        self._replication = Replication(config, source, server, resume.start)
        self._resume = resume.pack()
        self._keys = keys or Keys()
        #: end of the log after foreign keys were read from the catalogue; None: all noted keys still exist
        self._keys_end: Place | None = self._ask_end() if self._keys.known.has_gone else None
        #: table changed by foreign key actions → time when its copy was last planned
        self._planned: dict[str, float] = {}
        self._ended = EndedWithoutLog()
        self._may_ask_for_xa = True
        self._is_empty = False
        #: the end of the server's log at the last query
        self._server_end: Place | None = None
        self._asked_at = 0.0
        self._moved_at = time.monotonic()

    @property
    def read_to(self) -> Place:
        """The position up to which the log was read, with GTIDs if the server has them."""
        return self._assembler.resume.place

    def is_due(self, table: str) -> bool:
        """Whether a copy of the table may be planned now. Limits copies of tables changed by foreign key actions."""
        if self._keys.is_logged or not any(key.child == table for key in self._keys.known.captured()):
            return True
        now, planned = time.monotonic(), self._planned.get(table)
        if planned is not None and now - planned < self._config.foreign_key_recopy_seconds:
            return False
        self._planned[table] = now
        return True

    def poll(self, held: frozenset[int]) -> Polled:
        if self._announce:
            # the first poll returns only the start position, so that it is durable before anything is read
            self._announce = False
            return self._polled(self._assembler.count)
        before = self._assembler.count
        if THREAD not in held:
            self._read()
            self._check_xa_before_handing_over()
        self._look_after()
        return self._polled(before)

    def _read(self) -> list[bytes]:
        """Read and decode available events, up to `read_bytes`. Return them."""
        found, self._is_empty = self._replication.receive(self._config.read_bytes)
        if found:
            self._assembler.feed_all(found)
            self._check_file()
            self._resume = self._assembler.resume.pack()
        return found

    def _check_xa_before_handing_over(self) -> None:
        """Mark the tables of XA transactions that ended without a log entry as stale before later transactions are
        returned.

        If the server no longer has a held XA transaction, its end must be in the log before the log's current end. The
        log is read up to there first, within the XA_WAIT limits; beyond them, `_look_for_xa` decides at the end of the
        log.
        """
        assembler = self._assembler
        missing = self._missing_xa() if assembler.committed and assembler.held else frozenset()
        if not missing:
            return
        end, size, until = self._ask_end(), 0, time.monotonic() + XA_WAIT_SECONDS_MAX
        while not self._has_passed(end) and size < XA_WAIT_BYTES_MAX and time.monotonic() < until:
            size += sum(map(len, self._read()))
            if self._is_empty:
                time.sleep(XA_WAIT_SECONDS)
        if self._has_passed(end):
            for xid in missing & assembler.held:
                assembler.give_up(xid)

    def _missing_xa(self) -> frozenset[Xid]:
        """Return the held XA transactions that the server no longer has as prepared."""
        if self._may_ask_for_xa and (there := prepared(self._catalogue, self._source)) is not None:
            return self._assembler.held - there
        self._may_ask_for_xa = False
        return frozenset()

    def _polled(self, before: int) -> Polled:
        assembler = self._assembler
        found, assembler.committed = assembler.committed, []
        left_out, assembler.left_out = assembler.left_out, []
        names, assembler.names = assembler.names, []
        notes = self._stale.notes() | self._keys.known.notes()
        self._ahead.add(before, names)
        if found and self._before.place.gtids is not None:
            if before + len(names) != assembler.count:
                raise LogUnknownError(
                    "a transaction without a GTID among others that have one", source=self._source, thread=THREAD,
                    hint="gtid_mode must be ON, or position: file",
                )  # fmt: skip
            notes[AHEAD] = self._ahead.pack()
        mark = ThreadMark(THREAD, Order.mark(assembler.count), self._resume, ThreadState.OPEN, self._at_end())
        return Polled(found, {THREAD: mark}, left_out, notes, self._stale.found)

    def _check_file(self) -> None:
        """Raise if the log file has the stored name but another creation time: the logs were reset."""
        before, now = self._before, self._assembler
        is_named = before.place.gtids is None and before.back is None and before.place.file == now.file
        if is_named and before.made and now.made and before.made != now.made:
            raise IncarnationError(
                f"{now.file} is not the file that was read before", source=self._source,
                hint="the server's logs were reset: reset the source's position, its tables are copied again",
            )  # fmt: skip

    def _at_end(self) -> bool:
        end = self._server_end
        return self._is_empty and end is not None and self._has_passed(end)

    def _has_passed(self, end: Place) -> bool:
        assembler = self._assembler
        return not assembler.is_inside and Place(assembler.file, assembler.position).order >= end.order

    def _look_after(self) -> None:
        now = time.monotonic()
        if self._keys_end is not None and self._has_passed(self._keys_end):
            self._keys_end = None
            self._keys.known.forget_gone()
        if self._is_empty and now - self._asked_at >= self._config.end_check_seconds:
            self._asked_at = now
            self._server_end = self._ask_end()
            metrics.show(self._source, self._server_end, Place(self._assembler.file, self._assembler.position))
            is_due = now - self._moved_at >= MOVE_SECONDS and self._at_end()
            # advance only if all counted groups are durable: groups that are read again must get the same counts
            if is_due and not self._assembler.committed and not self._assembler.names and not self._ahead:
                self._moved_at = now
                self._look_for_xa()
                self._assembler.move_on()
                self._resume = self._assembler.resume.pack()

    def _look_for_xa(self) -> None:
        """At the end of the log: give up held XA transactions that are neither prepared nor ended in the log."""
        held = self._assembler.held
        for xid in self._ended.found(held, self._has_passed):
            self._assembler.give_up(xid)
        if held and (missing := self._missing_xa()):
            self._ended.ask(missing, self._ask_end())

    def _ask_end(self) -> Place:
        return log_end(self._catalogue.connection, self._catalogue.server, self._source)

    def end_of_log(self) -> Callable[[], Order | None]:
        """Return a function that gives the mark at the current log end, None until the stream has reached it.

        Rows visible to a SELECT before this call are in the log before that end.
        """
        end = self._ask_end()

        def covered() -> Order | None:
            return Order.mark(self._assembler.count) if self._has_passed(end) else None

        return covered

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """Drop pending GTIDs up to the durable position. The server purges its log by time, so it is not notified."""
        self._ahead.forget(Resume.unpack(resumes[THREAD]).count)

    def close(self) -> None:
        self._replication.close()
        self._catalogue.close()
        self._space.close()
