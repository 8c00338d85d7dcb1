"""The stream of one Turso database: its CDC table, read by SELECTs, and pruned if configured.

A SELECT sees one state of the database, in which all visible changes are committed. Each poll reads the row of the
position again. If it is missing or different, another process has deleted from the table (if it is empty, Turso counts
from 1 again), or the file is an older one; or the connection saw older pages, as happens for a moment while another
process opens the file (decision 016). So it is an error only if new connections see the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import structlog

from lowwater.errors import LogGapError, LogUnknownError, SourceError, SourceLostError
from lowwater.records.positions import Order
from lowwater.runtime.failpoints import fail_point
from lowwater_extractor.api import Encoders, Polled, ThreadMark, ThreadState
from lowwater_extractor.sources.turso import catalogue, metrics
from lowwater_extractor.sources.turso.assembler import THREAD, Assembler, NowTables, cuts_behind
from lowwater_extractor.sources.turso.audit import NOTE as COUNTED
from lowwater_extractor.sources.turso.audit import Audit
from lowwater_extractor.sources.turso.config import TursoConfig
from lowwater_extractor.sources.turso.connect import DOUBT_SECONDS, Database, named_errors, refuse_mvcc
from lowwater_extractor.sources.turso.position import Resume, checksum
from lowwater_extractor.sources.turso.relations import COMMIT, COMMIT_MINOR, CapturedMaker
from lowwater_extractor.sources.turso.schema.definitions import Definitions, quoted
from lowwater_extractor.sources.turso.schema.schema_watch import NOTE as SCHEMA_NOTE
from lowwater_extractor.sources.turso.schema.schema_watch import SchemaWatch
from lowwater_extractor.sources.turso.tables import Tables
from lowwater_extractor.spill import SpillSpace

#: how often the schema of an idle file is checked
CHECK_SECONDS = 1.0
#: rows fetched from the engine at once
FETCH_ROWS = 500
#: limits of pruning: short transactions, so that writers get the lock in between
PRUNE_ROWS = 5_000
PRUNE_SECONDS_MAX = 0.25
#: name of the note with the ends of polls
_CUTS = "cuts"

_log = structlog.get_logger()


class TursoStream:
    def __init__(
        self, config: TursoConfig, source: str, database: Database, encoders: Encoders, resume: bytes | None
    ) -> None:
        self._config = config
        self._source = source
        self._database = database
        self._announce = resume is None
        self._space = SpillSpace(config.spill_directory)
        definitions = Definitions(source, config.types)
        self._tables = Tables(config, source, definitions, CapturedMaker(config, source, encoders))
        self.seen = self._tables.seen
        self._schema = SchemaWatch(database, config.cdc_table)
        #: notes to store with the next position
        self._notes: dict[str, bytes] = {}
        self._is_v1 = catalogue.cdc_version(database, config) == "v1"
        self._txn = "change_id" if self._is_v1 else "change_txn_id"
        self._rows = (
            f'SELECT change_id, change_time, {self._txn}, change_type, table_name, id, "before", "after", updates'
            # with a limit, because the engine runs a statement that is closed early to its end: each poll would read
            # all remaining rows
            f" FROM {quoted(config.cdc_table)} WHERE change_id >= ? ORDER BY change_id LIMIT ?"
        )
        self._audit = Audit(database, config.cdc_table, config.audit_seconds)
        #: checksum of the change before the COMMIT of the position, if it was read
        self._before: int | None = None
        if resume is None:
            self._start = self._begin()
        else:
            self._start, self._before = Resume.unpack_all(resume)
            self._check_before()
            self._tables.restore(encoders.notes, self._start.at)
            self._schema.restore(encoders.notes)
            self._audit.restore(encoders.notes, self._start.at, self._tables)
        now_tables: NowTables = lambda at: catalogue.texts_at(database, config, at)  # noqa: E731
        self._cuts: list[int] = json.loads(encoders.notes.get(_CUTS, b"[]"))
        self._assembler = Assembler(
            config, source, self._tables, self._space, self._start.at, now_tables, self._cuts,
            is_schema_changed=lambda: self._schema.differs,
        )  # fmt: skip
        #: change id of the position in Kafka
        self._durable_at = self._start.at
        #: the last row that was read, and the one before it
        self._last = self._start
        self._last_but_one: tuple[Any, ...] | None = None
        self._resumed = self._start
        self._at_end = False
        #: since when polls have not seen the rows that were read before; None: they do
        self._doubted_at: float | None = None
        self._is_doubted_in_view = False
        self._looked_at = self._checked_at = self._pruned_at = 0.0
        #: average size of a row in the last poll
        self._row_bytes = 256

    def _begin(self) -> Resume:
        """Return the position after the last commit, and record the tables as of that position."""
        cdc = quoted(self._config.cdc_table)
        with self._database.view():
            rows = self._database.ask(
                f"SELECT change_id, change_time, {self._txn} FROM {cdc} ORDER BY change_id DESC LIMIT 1"
            )
            start = Resume(*rows[0]) if rows else Resume(0, 0, 0)
            texts, places = catalogue.texts_and_places(self._database)
            self._tables.begin(texts, start.at, places)
            self._notes[SCHEMA_NOTE] = self._schema.look(self._tables, start.at)
            if self._audit.is_due:
                # counted before anything is copied, so that later writes without the log are found
                self._audit.look(self._tables, texts, start.at)
                self._notes[COUNTED] = self._audit.note()
        return start

    # -- reading -----------------------------------------------------------------------------------------

    def poll(self, held: frozenset[int]) -> Polled:
        now = time.monotonic()
        if self._announce:
            # the position at which capture begins must be durable before anything is read
            self._announce = False
        elif THREAD not in held and (not self._at_end or now - self._looked_at >= self._config.look_seconds):
            self._looked_at = now
            try:
                self._read()
                if self._doubted_at is None and self._schema.is_changed(self._last.at):
                    self._follow_schema()
                if now - self._checked_at >= CHECK_SECONDS:
                    self._checked_at = now
                    self._check()
            except SourceError as error:
                if f"no such table: {self._config.cdc_table}" not in error.what:
                    raise
                raise self._other_log(f"the table {self._config.cdc_table} is gone", self._last.at) from error
            if self._is_doubted_in_view:
                self._is_doubted_in_view = False
                self._database.connect_anew()
        return self._polled()

    def _follow_schema(self) -> None:
        """Mark tables that were changed without the log as stale, before the rows that were read are returned.

        Their rows may have been decoded with the old columns.
        """
        with self._database.view():
            self._read(is_in_view=True)
            if self._doubted_at is not None:
                return
            ((last,),) = self._database.ask(f"SELECT max(change_id) FROM {quoted(self._config.cdc_table)}")
            if (last or 0) == self._last.at == self._assembler.end:
                self._adopt()
            elif last and last >= self._last.at:
                for name in self._schema.unlogged(self._tables, self._assembler.read_to):
                    self._tables.mark_stale(name, last, "it was changed without a change in the log", at_end=True)

    def _adopt(self) -> None:
        texts, places = catalogue.texts_and_places(self._database)
        self._tables.adopt(texts, self._last.at, places)
        self._notes[SCHEMA_NOTE] = self._schema.look(self._tables, self._last.at)

    def _polled(self) -> Polled:
        assembler = self._assembler
        found, assembler.committed = assembler.committed, []
        left_out, assembler.left_out = assembler.left_out, []
        resume = self._resume()
        mark = ThreadMark(
            THREAD, self._tables.mark_at(assembler.end), resume.pack(self._before), ThreadState.OPEN, self._at_end,
            COMMIT_MINOR,
        )  # fmt: skip
        notes, self._notes = {**self._tables.take_notes(), **self._notes}, {}
        if found:
            # some transactions may become durable before the position after them
            self._cuts = cuts_behind(self._cuts, self._durable_at, assembler.end)
            notes[_CUTS] = json.dumps(self._cuts).encode()
        return Polled(found, {THREAD: mark}, left_out, notes, self._tables.stale.found)

    def _resume(self) -> Resume:
        end, commits = self._assembler.end, self._assembler.commits
        if end != self._resumed.at:
            self._resumed = Resume(end, *commits[end])
            is_known = self._last_but_one is not None and self._last.at == end
            self._before = checksum(self._last_but_one) if is_known and self._last_but_one is not None else None
            for passed in [at for at in commits if at <= end]:
                del commits[passed]
        return self._resumed

    def _read(self, *, is_in_view: bool = False) -> None:
        """Read new rows, up to a limit. A transaction at the end of the visible rows is complete."""
        size, count, known, is_whole = 0, 0, self._last.at > 0, True
        count_max = max(FETCH_ROWS, self._config.read_bytes // self._row_bytes)
        with named_errors(self._source, "read the changes"):
            found = self._database.select(self._rows, (self._last.at, count_max))
            try:
                while size < self._config.read_bytes and ((rows := found.fetch(FETCH_ROWS)) or known):
                    is_whole = self._follows(rows, known)
                    if not is_whole:
                        break
                    self._take(rows[known:])
                    # without the last row, which is read again: it may be larger than `read_bytes` by itself
                    size += _size(rows[known:])
                    count += len(rows)
                    known = False
            finally:
                found.close()
        self._database.check_shared()
        if is_whole:
            self._doubted_at = None
        else:
            self._doubt(is_in_view=is_in_view)
        self._at_end = is_whole and size < self._config.read_bytes and count < count_max
        if size:
            # a poll that found only the last row again does not tell
            self._row_bytes = 1 + size // count
        if self._at_end:
            self._assembler.settle()

    def _follows(self, rows: list[tuple[Any, ...]], known: bool) -> bool:
        """Return whether rows continue after the last ones: without gaps, and beginning with the last row if `known`.

        While that is in doubt, False. After `DOUBT_SECONDS`, raises LogGapError.
        """
        is_known = not known or bool(rows and tuple(rows[0][:3]) == self._last)
        if is_known and (not rows or rows[-1][0] == self._last.at + len(rows) - known):
            return True
        if self._doubted_at is None or time.monotonic() - self._doubted_at < DOUBT_SECONDS:
            return False
        if not is_known:
            self._check_last(rows[0] if rows else None)
        # raises the error that names the gap
        self._assembler.feed(rows[known:])
        return True

    def _doubt(self, *, is_in_view: bool) -> None:
        if self._doubted_at is None:
            self._doubted_at = time.monotonic()
            metrics.DOUBTS.labels(self._source).inc()
            _log.warning("poll saw older pages than before: reconnecting", source=self._source, at=self._last.at)
        if is_in_view:
            # a view must end on the connection on which it began
            self._is_doubted_in_view = True
        else:
            self._database.connect_anew()

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        if self._is_v1:
            rows = self._alone(rows)
        self._assembler.feed(rows)
        self._audit.passed(rows, self._tables)
        self._last_but_one = rows[-2] if len(rows) > 1 else None
        self._last = Resume(*rows[-1][:3])

    def _alone(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Version 1 has no COMMIT rows: a single change is a transaction; of several changes the extent is unknown."""
        if len(rows) > 1:
            raise LogUnknownError(
                f"{len(rows)} changes at once: {self._config.cdc_table} is of version 1, which does not contain "
                "transaction boundaries",
                source=self._source,
                thread=THREAD,
                position=str(rows[0][0]),
                hint=catalogue.V1_HINT,
            )
        self._assembler.alone = True
        return rows

    def _check_last(self, row: tuple[Any, ...] | None) -> None:
        if row is None or tuple(row[:3]) != tuple(self._last):
            found = "is gone" if row is None or row[0] != self._last.at else "is a different one"
            raise self._other_log(f"change {self._last.at}, which was read last, {found}", self._last.at)

    def _check_before(self) -> None:
        """Compare the change before the COMMIT of the position with its checksum.

        In two copies of a file, COMMITs of the same second may be equal; the changes before them are not.
        """
        until = time.monotonic() + DOUBT_SECONDS
        while self._before is not None:
            rows = self._database.ask(self._rows, (self._start.at - 1, 1))
            if not rows or rows[0][0] != self._start.at - 1 or checksum(rows[0]) == self._before:
                # a missing change proves nothing: the first poll checks the COMMIT itself
                return
            if time.monotonic() > until:
                what = f"change {self._start.at - 1}, which was read before, is a different one"
                raise self._other_log(what, self._start.at)
            # the connection may have read older pages
            self._database.connect_anew()

    def _other_log(self, what: str, at: int) -> LogGapError:
        """Return an error for a log that is not the one that was read before, and give the file a new identity."""
        self._database.name_again()
        return LogGapError(
            what,
            source=self._source,
            thread=THREAD,
            position=str(at),
            hint="the file is an older one, or its log was emptied: see docs/turso.md, when the log begins again",
        )

    def end_of_log(self) -> Callable[[], Order | None]:
        """As `WindowStream.end_of_log`: the last visible COMMIT, since marks are change ids of COMMITs."""
        cdc = quoted(self._config.cdc_table)
        is_commit = "" if self._is_v1 else f"WHERE change_type = {COMMIT}"
        self._database.connect_anew()
        rows = self._database.ask(f"SELECT change_id FROM {cdc} {is_commit} ORDER BY change_id DESC LIMIT 1")
        end = Order.mark(max(rows[0][0] if rows else 0, self._assembler.end))
        return lambda: end

    # -- periodic tasks ----------------------------------------------------------------------------------

    def _check(self) -> None:
        """Compare the tables, at the end of the log, with the database's schema; and their rows with its counts."""
        refuse_mvcc(self._config.path, self._source)
        self._database.check_same_file()
        with self._database.view():
            ((last,),) = self._database.ask(f"SELECT max(change_id) FROM {quoted(self._config.cdc_table)}")
            is_whole = self._at_end and (last or 0) == self._last.at == self._assembler.end
            if is_whole and (self._schema.is_changed(self._last.at) or self._tables.is_unsure):
                self._adopt()
            if self._audit.is_due and self._doubted_at is None and (last or 0) >= self._last.at:
                self._count()

    def _count(self) -> None:
        wrong = self._audit.look(self._tables, catalogue.texts(self._database), self._last.at)
        for name, (wanted, found) in wrong.items():
            reason = f"it has {found} rows, and {wanted} by its log: rows were added or deleted without the log"
            at_end = self._audit.counted_at <= self._assembler.end
            self._tables.mark_stale(
                name, self._assembler.end if at_end else self._audit.counted_at, reason, at_end=at_end
            )
        self._notes[COUNTED] = self._audit.note()

    def acknowledge(self, resumes: Mapping[int, bytes]) -> None:
        at = self._durable_at = Resume.unpack(resumes[THREAD]).at
        self._tables.passed(at)
        now = time.monotonic()
        if self._config.prune and now - self._pruned_at >= self._config.prune_seconds:
            self._pruned_at = now
            # the change before the position identifies the log later, and the audit needs changes since its last count
            kept = min(at - 1, self._audit.counted_at) if self._config.audit_seconds else at - 1
            self._prune(max(0, kept))

    def _prune(self, at: int) -> None:
        """Delete changes below `at`. The row of the position is retained: it identifies the log, and Turso continues
        to count from it."""
        cdc = quoted(self._config.cdc_table)
        deleted = 0
        try:
            self._database.check_shared()
            ((first,),) = self._database.ask(f"SELECT min(change_id) FROM {cdc}")
            for start in range(first or at, at, PRUNE_ROWS):
                end = min(start + PRUNE_ROWS, at)
                self._database.ask(f"DELETE FROM {cdc} WHERE change_id >= ? AND change_id < ?", (start, end))
                deleted += end - start
                fail_point("turso.some_pruned")
                if time.monotonic() - self._pruned_at > PRUNE_SECONDS_MAX:
                    # the rest is deleted after the next poll
                    self._pruned_at = 0.0
                    break
        except SourceLostError as error:
            # a writer holds the lock for long: retried at the next acknowledgement
            _log.warning("pruning postponed", **error.fields())
        metrics.PRUNED.labels(self._source).inc(deleted)
        fail_point("turso.pruned")

    def close(self) -> None:
        self._database.close()
        self._space.close()


def _size(rows: list[tuple[Any, ...]]) -> int:
    """Return the approximate size of the rows, from every tenth row, for the limit of a poll."""
    sample = rows[::10]
    return len(rows) * sum(len(row[6] or b"") + len(row[7] or b"") + 64 for row in sample) // max(1, len(sample))
