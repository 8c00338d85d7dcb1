"""The stream of one server: whole committed transactions in the order in which the log has them.

**Marks.** The log is read in its own order, one thread, so the number of the last group that came is a mark. It moves
on by itself now and then while nothing comes, so that a copy that becomes readable has a place.

**A lost connection** ends the session, and the next begins at the position that Kafka holds: there is one way to
start, on the same server or, by GTIDs, on another one.
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

#: so often the mark of an idle server moves on
MOVE_SECONDS = 1.0
#: how much of the log is read, and for how long, before transactions are handed over while an XA transaction's end is
#: looked for in it
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
        )
        self.seen = maker.seen
        #: what may be published behind the position that is durable
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
        #: where the log ended after the catalogue was asked for its foreign keys; none: it had all that were noted
        self._keys_end: Place | None = self._ask_end() if self._keys.known.has_gone else None
        #: when a copy of each table that foreign keys change was planned last
        self._planned: dict[str, float] = {}
        self._ended = EndedWithoutLog()
        self._may_ask_for_xa = True
        self._is_empty = False
        #: where the server's log ended when it was asked last
        self._server_end: Place | None = None
        self._asked_at = 0.0
        self._moved_at = time.monotonic()

    @property
    def read_to(self) -> Place:
        """What has been read: names where there are some, and the place in the log."""
        return self._assembler.resume.place

    def is_due(self, table: str) -> bool:
        """Whether a copy may be planned now: of children that foreign keys change, not too often."""
        if self._keys.is_logged or not any(key.child == table for key in self._keys.known.captured()):
            return True
        now, planned = time.monotonic(), self._planned.get(table)
        if planned is not None and now - planned < self._config.foreign_key_recopy_seconds:
            return False
        self._planned[table] = now
        return True

    def poll(self, held: frozenset[int]) -> Polled:
        if self._announce:
            # the position that capture begins at is durable before anything is read
            self._announce = False
            return self._polled(self._assembler.count)
        before = self._assembler.count
        if THREAD not in held:
            self._read()
            self._check_xa_before_handing_over()
        self._look_after()
        return self._polled(before)

    def _read(self) -> int:
        """The number of bytes that have come."""
        found, self._is_empty = self._replication.receive(self._config.read_bytes)
        if found:
            self._assembler.feed_all(found)
            self._check_file()
            self._resume = self._assembler.resume.pack()
        return sum(map(len, found))

    def _check_xa_before_handing_over(self) -> None:
        """The tables of an XA transaction that was ended without the log are stale in front of what is handed over.

        If the server no longer has one that is held, its end must be in the log up to where that ends now. So this is
        read first, if it is not too much to keep in memory; if it is, `_look_for_xa` finds it at the end of the log.
        """
        assembler = self._assembler
        missing = self._missing_xa() if assembler.committed and assembler.held else frozenset()
        if not missing:
            return
        end, size, until = self._ask_end(), 0, time.monotonic() + XA_WAIT_SECONDS_MAX
        while not self._has_passed(end) and size < XA_WAIT_BYTES_MAX and time.monotonic() < until:
            size += self._read()
            if self._is_empty:
                time.sleep(XA_WAIT_SECONDS)
        if self._has_passed(end):
            for xid in missing & assembler.held:
                assembler.give_up(xid)

    def _missing_xa(self) -> frozenset[Xid]:
        """XA transactions that are held here, and that the server has ended."""
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
        """A file of the same name that was begun at another time is another file."""
        before, now = self._before, self._assembler
        is_named = before.place.gtids is None and before.back is None and before.place.file == now.file
        if is_named and before.made and now.made and before.made != now.made:
            raise IncarnationError(
                f"{now.file} is not the file that was read before", source=self._source,
                hint="the server's logs were reset: reset the source's position to capture it anew",
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
            # a number without a group is behind all that is not durable: what is read again has the same numbers
            if is_due and not self._assembler.committed and not self._assembler.names and not self._ahead:
                self._moved_at = now
                self._look_for_xa()
                self._assembler.move_on()
                self._resume = self._assembler.resume.pack()

    def _look_for_xa(self) -> None:
        """At the end of the log: those that are held must be prepared, or their end must come."""
        held = self._assembler.held
        for xid in self._ended.found(held, self._has_passed):
            self._assembler.give_up(xid)
        if held and (missing := self._missing_xa()):
            self._ended.ask(missing, self._ask_end())

    def _ask_end(self) -> Place:
        return log_end(self._catalogue.connection, self._catalogue.server, self._source)

    def end_of_log(self) -> Callable[[], Order | None]:
        """All that a read could see was in the log before it could be seen."""
        end = self._ask_end()

        def covered() -> Order | None:
            return Order.mark(self._assembler.count) if self._has_passed(end) else None

        return covered

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        """A server lets go of its log by time, not by what its readers have read."""
        self._ahead.forget(Resume.unpack(resumes[THREAD]).count)

    def close(self) -> None:
        self._replication.close()
        self._catalogue.close()
        self._space.close()
