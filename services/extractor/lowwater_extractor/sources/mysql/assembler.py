"""Assembles binary log events into whole committed transactions. Its only I/O is spilling large transactions to disk.

The log consists of event groups: a GTID, the changes, and an end (XID, COMMIT, or a statement with implicit commit).
Groups are written one after the other at commit, so a group is a transaction and groups are in commit order. The
exception is XA: the rows are in a group at XA PREPARE, and are committed only by the XA COMMIT of a later group.
"""

from __future__ import annotations

import struct
import traceback
import zlib
from collections.abc import Callable, Iterable
from typing import Protocol

import structlog

from lowwater.errors import CodecError, LogCorruptError, LogGapError, LogUnknownError
from lowwater.records.positions import Order
from lowwater_extractor.api import Frame, SourceTransaction
from lowwater_extractor.sources.mysql.ddl import foreign_keys as fk
from lowwater_extractor.sources.mysql.ddl.altered_tables import AlteredTables
from lowwater_extractor.sources.mysql.ddl.apply import Ddl, Tables
from lowwater_extractor.sources.mysql.ddl.parents import Parent
from lowwater_extractor.sources.mysql.ddl.statements import Statement, What, Xid, classify
from lowwater_extractor.sources.mysql.event_group import Group
from lowwater_extractor.sources.mysql.position import PendingGtids, Place, Resume, parse_gtids
from lowwater_extractor.sources.mysql.relations import Relation
from lowwater_extractor.sources.mysql.wire import events as ev
from lowwater_extractor.sources.mysql.wire.table_map import table_name
from lowwater_extractor.sources.mysql.xa import HeldTransactions
from lowwater_extractor.spill import SpillSpace
from lowwater_extractor.transaction_buffer import TransactionBuffer

THREAD = 1
#: memory for each held XA transaction; larger ones go to disk
_HELD_BYTES_MAX = 256 << 10
#: maximum number of cached table maps
_MAPS_MAX = 20_000

_CRC = zlib.crc32
#: CRC-32 of any data followed by its own CRC-32
_WITH_CHECKSUM = 0x2144DF1C
_HALF = 1 << 31
_U32 = struct.Struct("<I").unpack_from
_WRITES, _UPDATES, _DELETES = (ev.WRITE_ROWS, ev.WRITE_ROWS_1), (ev.UPDATE_ROWS, ev.UPDATE_ROWS_1), (
    ev.DELETE_ROWS, ev.DELETE_ROWS_1,
)  # fmt: skip
_ROWS = frozenset((*_WRITES, *_UPDATES, *_DELETES))

_log = structlog.get_logger()


class Maker(Tables, Protocol):
    def written_by(self, version: str) -> None: ...

    def relation(self, body: bytes) -> Relation | None: ...

    def take_keyless(self) -> str: ...

    def parent(self, body: bytes, keys: fk.ForeignKeys) -> Parent | None:
        """Return the parent for a table map, None unless foreign keys of captured tables reference the table."""
        ...

    def statement_text(self, data: bytes, collation: int) -> str: ...


class Assembler:
    """Takes events in order and appends committed transactions to `committed`, which the caller empties."""

    def __init__(
        self, source: str, make: Maker, space: SpillSpace, bytes_max: int, resume: Resume, *,
        is_mariadb: bool, ahead: PendingGtids | None = None, leaves_out: bool = False, ddl: Ddl | None = None,
        tick: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self._source = source
        self._make = make
        self._space = space
        self._bytes_max = bytes_max
        self._tick = tick
        self._is_mariadb = is_mariadb
        self.ddl = ddl or Ddl(make, AlteredTables(source, {}))
        #: table number → parent of captured tables
        self._parents: dict[bytes, Parent] = {}
        self._before = resume
        self._gtids = parse_gtids(resume.place.gtids, is_mariadb)
        self._ahead = (ahead or PendingGtids()).names
        self._has_checksums = True
        self._maps: dict[bytes, Relation | None] = {}
        self._tables: dict[bytes, Relation | None] = {}
        self._group: Group | None = None
        self._xa = HeldTransactions(source, make.is_captured, leaves_out=leaves_out)
        #: end of the last event in the log
        self.file = resume.start.file
        self.position = resume.start.position
        self._place = resume.place
        self._gtids_text: str | None = resume.place.gtids
        self._is_replaying = resume.back is not None
        self.made = resume.made
        #: count of the last group
        self.count = resume.count
        self.committed: list[SourceTransaction] = []
        #: GTIDs of all groups since the caller emptied it
        self.names: list[str] = []
        self.left_out: list[tuple[int, str, str]] = []

    @property
    def resume(self) -> Resume:
        """The position after the last group."""
        place = self._place
        if self._gtids is not None:
            if self._gtids_text is None:
                self._gtids_text = str(self._gtids)
            place = Place(place.file, place.position, self._gtids_text)
        xa, back = self._xa.open()
        if self._is_replaying:
            xa, back = self._before.xa, self._before.back
        return Resume(self.count, place, self._before.server, self.made, xa, back)

    @property
    def is_inside(self) -> bool:
        return self._group is not None

    def move_on(self) -> None:
        """Increase the count without a group: records published between two groups need an order of their own."""
        assert self._group is None
        self.count += 1

    @property
    def held(self) -> frozenset[Xid]:
        """XA transactions that are prepared and have not ended."""
        return self._xa.xids

    def give_up(self, xid: Xid) -> None:
        """Drop a held transaction that the server has ended without a log entry: it is unknown whether it committed.

        Its tables are marked stale at the count of the next group. Copies whose view is after that group, or after
        `move_on`, are valid.
        """
        group = self._xa.take(xid)
        for table in filter(self._make.is_captured, group.tables | group.stale.keys()):
            self.ddl.stale.add(table, Order(self.count + 1, 0), f"XA {xid} was ended without a log entry")

    # -- events ------------------------------------------------------------------------------------------

    def feed_all(self, found: Iterable[bytes]) -> None:
        e = b""
        try:
            for e in found:
                kind = e[4]
                if kind == ev.TABLE_MAP or kind in _WRITES:
                    self._feed_quick(e, kind)
                else:
                    self._feed(e, kind)
        except (struct.error, IndexError, KeyError, ValueError) as error:
            raise self._corrupt(f"a truncated or malformed event ({_place_of(error)}): {e[:64].hex(' ')}") from error
        except (CodecError, LogUnknownError, LogCorruptError) as error:
            error.source, error.thread = error.source or self._source, THREAD
            error.position = error.position or f"{self.file}:{self.position}"
            raise

    def _feed_quick(self, e: bytes, kind: int) -> None:
        """Handle table maps and inserts, which are most of a log, with as few calls as possible."""
        end = len(e)
        if self._has_checksums:
            if _CRC(e) != _WITH_CHECKSUM:
                raise self._corrupt(f"the checksum of an event is wrong: {e[:64].hex(' ')}")
            end -= 4
        # positions inside a group are summed up, because the 4-byte log_pos of events may overflow
        self.position += len(e)
        if kind == ev.TABLE_MAP:
            self._table_map(e[ev.HEADER : end])
            return
        group = self._group
        relation = self._tables.get(e[ev.HEADER : ev.HEADER + 6])
        if relation is None or group is None or not group.is_kept:
            self._rows(e, kind, end)
            return
        at = ev.HEADER + 8 if kind == ev.WRITE_ROWS_1 else ev.HEADER + 8 + (e[ev.HEADER + 8] | e[ev.HEADER + 9] << 8)
        size = relation.inserts_whole(e, at, end, group.buffer.frames, group.ts_us)
        if size < 0:
            self._rows(e, kind, end)
            return
        group.buffer.grown(size)

    def _feed(self, e: bytes, kind: int) -> None:
        end = len(e)
        if self._has_checksums or kind == ev.FORMAT_DESCRIPTION:
            end -= 4
            if _CRC(e) != _WITH_CHECKSUM:
                end = self._without_checksum(e, kind)
        log_pos = _U32(e, 13)[0]
        if log_pos and not e[17] & ev.ARTIFICIAL and kind not in (ev.HEARTBEAT, ev.HEARTBEAT_2, ev.ROTATE):
            # log_pos has 4 bytes, but files with very large transactions exceed 4 GB
            self.position += (log_pos - self.position + _HALF & 0xFFFFFFFF) - _HALF
        self._take(e, kind, end)

    def _take(self, e: bytes, kind: int, end: int) -> None:
        if kind in _ROWS:
            self._rows(e, kind, end)
        elif kind == ev.TABLE_MAP:
            self._table_map(e[ev.HEADER : end])
        elif kind == ev.XID:
            self._commit()
        elif kind == ev.GTID or kind == ev.ANONYMOUS_GTID:
            self._begin(ev.gtid(e[:end]))
        elif kind == ev.MARIA_GTID:
            self._begin(ev.maria_gtid(e[:end]))
        elif kind == ev.QUERY:
            self._query(ev.query(e[:end]))
        else:
            self._rare(e[:end], kind)

    def _without_checksum(self, e: bytes, kind: int) -> int:
        """Return the end of an event without a checksum; raise LogCorruptError if it should have one.

        An artificial ROTATE event precedes the FORMAT_DESCRIPTION event that announces checksums.
        """
        if kind == ev.ROTATE and not _U32(e, 0)[0]:
            return len(e)
        if kind == ev.FORMAT_DESCRIPTION and not ev.format_description(e).has_checksums:
            return len(e) - ev.CHECKSUM_BYTES
        raise self._corrupt(f"the checksum of an event is wrong: {e[:64].hex(' ')}")

    def _table_map(self, body: bytes) -> None:
        try:
            self._tables[body[:6]] = self._maps[body]
        except KeyError:
            self._tables[body[:6]] = self._map(body)
        if self._group is not None and self._group.is_xa:
            namespace, table, _ = table_name(body)
            self._group.tables.add(f"{namespace}.{table}")

    def _map(self, body: bytes) -> Relation | None:
        if len(self._maps) > _MAPS_MAX:
            self._maps.clear()
        relation = self._maps[body] = self._make.relation(body)
        if (keyless := self._make.take_keyless()) and self._group is not None:
            # each change makes it stale again
            del self._maps[body]
            self._group.stale[keyless] = "its rows were changed while it had no primary key"
        parent = self._make.parent(body, self.ddl.keys.known)
        if parent is not None:
            self._parents[body[:6]] = parent
        else:
            self._parents.pop(body[:6], None)
        return relation

    def _rows(self, e: bytes, kind: int, end: int) -> None:
        group = self._group
        if group is None:
            raise self._corrupt("rows outside of a group")
        try:
            relation = self._tables[e[ev.HEADER : ev.HEADER + 6]]
        except KeyError:
            raise self._corrupt("rows of a table without a table map") from None
        if not group.is_kept:
            return
        at = ev.HEADER + 8
        if kind >= ev.WRITE_ROWS:
            at += e[at] | e[at + 1] << 8
        if self._parents and kind not in _WRITES:
            self._look_at_children(e, kind, at, end, group)
        if relation is None:
            return
        if kind in _WRITES:
            take = relation.inserts
        else:
            take = relation.updates if kind in _UPDATES else relation.deletes
        group.buffer.grown(take(e, at, end, group.buffer.frames, group.ts_us))

    def _look_at_children(self, e: bytes, kind: int, at: int, end: int, group: Group) -> None:
        """Mark children as changed when parent rows are updated or deleted: foreign key actions may be unlogged."""
        parent = self._parents.get(e[ev.HEADER : ev.HEADER + 6])
        if parent is None or e[ev.HEADER + 6] & (fk.UNCHECKED | fk.DONE_BY_SERVER):
            return
        children = parent.children_of_delete if kind in _DELETES else parent.children_of_update(e, at, end)
        self.ddl.parent_changed(parent.table, children, group)

    # -- groups ------------------------------------------------------------------------------------------

    def _begin(self, found: ev.Gtid) -> None:
        if self._group is not None:
            raise self._corrupt(f"{found.gtid or 'a group'} begins inside of {self._group.gtid or 'another one'}")
        is_covered = self._is_replaying and self._is_covered(found.gtid)
        if self._is_replaying and not is_covered:
            self._end_replay()
        # groups that were published before are used only for XA
        self._group = Group(found, self._new_buffer(), is_covered=is_covered)

    def _is_covered(self, gtid: str) -> bool:
        if self._gtids is not None and gtid:
            return gtid in self._gtids
        return Place(self.file, self.position).order < self._before.place.order

    def _end_replay(self) -> None:
        self._is_replaying = False
        self._xa.check_all_there(self._before.xa)

    def _commit(self) -> None:
        if self._group is None:
            raise self._corrupt("a commit outside of a group")
        self._end(self._group)

    def _end(self, group: Group) -> None:
        """Finish a group and commit its changes, including those that were held for XA."""
        self._group = None
        if group.is_covered:
            return
        self.count += 1
        if group.gtid:
            self._check_ahead(group.gtid)
            self.names.append(group.gtid)
            if self._gtids is not None:
                self._gtids.add(group.gtid)
                self._gtids_text = None
        self._place = Place(self.file, self.position)
        if group.stale:
            self.ddl.commit(group, Order(self.count, 1))
        size, count = group.buffer.bytes, group.buffer.count
        if count:
            txid, order = group.gtid or f"{self.file}:{self.position}", Order(self.count, 1)
            changes = group.buffer.changes(self._tick)
            self.committed.append(SourceTransaction(THREAD, txid, order, group.ts_us, changes, size, count))

    def _new_buffer(self) -> TransactionBuffer[list[Frame]]:
        return TransactionBuffer(self._space, self._bytes_max, [])

    def _check_ahead(self, gtid: str) -> None:
        """Raise if the transactions after the stored position are in a different order than before the restart."""
        if self._ahead and (was := self._ahead.pop(self.count, gtid)) != gtid:
            raise LogGapError(
                f"{gtid} is in the log where {was} was before: this server has them in another order",
                source=self._source, thread=THREAD, position=str(self._place),
                hint="replicas keep the order with replica_preserve_commit_order=ON; connect to the server that was "
                "read before, or reset the source's position",
            )  # fmt: skip

    # -- statements --------------------------------------------------------------------------------------

    def _query(self, query: ev.Query) -> None:
        statement = self._statement(query)
        what, group = statement.what, self._group
        if group is None:
            if what is not What.BEGIN:
                raise self._corrupt(f"a statement ({what}) outside of a group")
            # logs of old servers have no GTID events
            self._begin(ev.Gtid("", 0))
            group = self._group
            assert group is not None
        match what:
            case What.BEGIN | What.XA_START:
                group.is_begun = True
                group.is_xa = group.is_xa or what is What.XA_START
            case What.COMMIT:
                self._end(group)
            case What.XA_END | What.SAVEPOINT:
                pass
            case What.XA_COMMIT | What.XA_ROLLBACK:
                assert statement.xid is not None
                self._end_xa(group, statement.xid, is_commit=what is What.XA_COMMIT)
            case What.ROLLBACK | What.ROLLBACK_TO:
                self._rolled_back(group, what)
            case What.DDL:
                self._apply(group, statement, query.namespace)
            case What.ROWS:
                raise LogUnknownError(
                    f"changes by a statement, not by their rows ({statement.verb})",
                    hint="binlog_format must be ROW, for every session; then reset the source's position",
                )
            case _:
                raise LogUnknownError(
                    f"a statement that is not understood ({statement.verb or 'unknown verb'}), in the "
                    f"database {query.namespace or 'none'}",
                    hint="report it with the server's version; to continue without it, reset the position: its "
                    "tables are copied again",
                )

    def _statement(self, query: ev.Query) -> Statement:
        text = query.text
        if text in (b"BEGIN", b"COMMIT"):
            return classify(text)
        session = ev.session(query.variables)
        decoded = text.decode() if text.isascii() else self._make.statement_text(text, session.collation)
        return classify(decoded, session.sql_mode, is_mariadb=self._is_mariadb)

    def _rolled_back(self, group: Group, what: What) -> None:
        """Handle a rollback, which is in the log only if a non-transactional table was changed as well."""
        if group.buffer.count and group.is_kept:
            raise LogUnknownError(
                f"{what} after changes: the log does not show which of them were undone",
                hint="use one engine, InnoDB, for all tables of a transaction; copy these tables again after a reset",
            )
        if what is What.ROLLBACK:
            self._end(group)

    def _apply(self, group: Group, statement: Statement, namespace: str) -> None:
        # columns and keys of tables may be different from here on
        self._maps.clear()
        self._parents.clear()
        self._xa.altered(self.ddl.altered_names(statement, namespace))
        if group.is_kept and not group.is_idle:
            self.ddl.apply(statement, namespace, group)
        if not group.is_begun or group.is_standalone:
            self._end(group)

    # -- XA ----------------------------------------------------------------------------------------------

    def _prepare(self, found: ev.Prepared) -> None:
        group = self._group
        if group is None:
            raise self._corrupt("an XA PREPARE outside of a group")
        if not found.is_one_phase:
            if found.xid in self._xa.xids:
                # the server accepts an xid again only after its transaction has ended: that is not in the log
                self.give_up(found.xid)
            # it may be held for days, together with many others
            group.buffer.limit(_HELD_BYTES_MAX)
            self._xa.hold(found.xid, group, self._held_from())
            group = group.emptied(self._new_buffer())
        self._end(group)

    def _held_from(self) -> Place:
        """Return the position to read this group from again; while replaying, the stored one."""
        if self._is_replaying:
            assert self._before.back is not None
            return self._before.back
        return self.resume.place

    def _end_xa(self, group: Group, xid: object, *, is_commit: bool) -> None:
        held, why = self._xa.end(xid, group, is_commit=is_commit)
        if why:
            self.left_out.append((THREAD, group.gtid or f"{self.file}:{self.position}", why))
        self._end(group if held is None else held)

    # -- other events ------------------------------------------------------------------------------------

    def _rare(self, e: bytes, kind: int) -> None:
        if kind in ev.COMPRESSED:
            plain = ev.uncompressed(e)
            self._take(plain, plain[4], len(plain))
        elif kind == ev.TRANSACTION_PAYLOAD:
            for inner in ev.payload(e):
                self._take(inner, inner[4], len(inner))
        elif kind == ev.XA_PREPARE:
            self._prepare(ev.prepared(e))
        elif kind == ev.ROTATE:
            self._rotate(e)
        elif kind == ev.FORMAT_DESCRIPTION:
            self._format(e)
        elif kind in (ev.HEARTBEAT, ev.HEARTBEAT_2):
            self._heartbeat(e, kind)
        elif kind == ev.PARTIAL_UPDATE_ROWS:
            raise LogUnknownError(
                "an update with parts of JSON documents, not whole ones",
                hint="SET GLOBAL binlog_row_value_options = ''; then reset the source's position",
            )
        elif kind == ev.INCIDENT:
            raise LogGapError(
                "the server reports that it could not write everything to its log (an incident)", source=self._source,
                thread=THREAD, position=f"{self.file}:{self.position}",
                hint="see the server's error log; reset the source's position, its tables are copied again",
            )  # fmt: skip
        elif kind == ev.GTID_TAGGED:
            self._begin(ev.tagged_gtid(e))
        elif kind not in ev.PASSED_OVER and not ev.is_ignorable(e):
            raise ev.unknown(e, f"{self.file}:{self.position}")

    def _rotate(self, e: bytes) -> None:
        found = ev.rotate(e)
        self.file, self.position = found.file, found.position
        # an artificial ROTATE only announces the start position
        if _U32(e, 0)[0]:
            self._pass()

    def _pass(self) -> None:
        """Outside of a group, advance the position to here."""
        if self._group is None and not self._is_replaying:
            self._place = Place(self.file, self.position)

    def _format(self, e: bytes) -> None:
        # the event was passed without its checksum, which format_description() expects
        found = ev.format_description(e + b"\x00" * ev.CHECKSUM_BYTES)
        if self._group is not None:
            _log.warning("a group without an end is dropped: the server stopped while writing it", source=self._source)
            self._group = None
        self._has_checksums = found.has_checksums
        self.made = found.made
        self._make.written_by(found.server_version)
        # a server assigns new table numbers at each start
        self._tables.clear()
        self._maps.clear()

    def _heartbeat(self, e: bytes, kind: int) -> None:
        if self._group is None and kind == ev.HEARTBEAT:
            log_pos = _U32(e, 13)[0]
            self.position = max(self.position, log_pos)
            self._pass()

    def _corrupt(self, what: str) -> LogCorruptError:
        return LogCorruptError(
            what, source=self._source, thread=THREAD, position=f"{self.file}:{self.position}",
            hint="the log is inconsistent: restart the source; if the error occurs again, report it",
        )  # fmt: skip


def _place_of(error: Exception) -> str:
    """Return type and code location of an error, without its text, which may contain a value."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.name}, line {last.lineno}"
