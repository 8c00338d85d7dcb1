"""Converts captured pairs to frames, when a transaction's changes are iterated.

Rows are decoded only after their transaction has committed, so a rollback costs little, and a large transaction is
buffered as bytes of the log.

A transaction uses one version of each table, that of its commit: its changes lock the table until then, and DDL waits
for the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LogUnknownError, SourceError
from lowwater_extractor.api import Encoders, Frame, SeenVersions
from lowwater_extractor.change_batch import IteratedChanges
from lowwater_extractor.sources.oracle import ddl, metrics
from lowwater_extractor.sources.oracle.altered_tables import Followed
from lowwater_extractor.sources.oracle.ddl import Ddl, Effect
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.redo.codes import HEAD
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.rows.pair_fields import fields, order_of
from lowwater_extractor.sources.oracle.rows.pairs import NoGroupError
from lowwater_extractor.sources.oracle.rows.row_changes import Joiner, RowChange, is_ddl
from lowwater_extractor.sources.oracle.rows.row_decoder import OUT_OF_LINE, TableRows
from lowwater_extractor.sources.oracle.rows.row_decoder_fast import Quicks, quicks
from lowwater_extractor.sources.oracle.rows.values import ERRORS
from lowwater_extractor.sources.oracle.scn import NEWEST, Scn

#: the kind of statement in a DDL's record
TRUNCATE_TABLE = 85
#: index of the field with the text in a DDL's record, from 0
_DDL_TEXT = 7


class Follows(Protocol):
    """A dictionary that is updated after DDL."""

    def names(self, container: int, object_id: int, statement: Ddl) -> set[str]:
        """The captured tables that a statement may affect; empty: it affects none."""
        ...

    def after(self, container: int, object_id: int, statement: Ddl, scn: Scn) -> Followed:
        """Read the affected tables again after a statement that committed at `scn`."""
        ...

    def loaded(self, container: int, data_object: int, scn: Scn) -> str | None:
        """The captured table that blocks were loaded into; None: another table."""
        ...

    def verify(self, scn: Scn) -> Followed | None:
        """All threads are read up to `scn`: the tables that differ from the database's; None: no table does."""
        ...


@dataclass(slots=True)
class _Way:
    """How changes of one object are converted to frames, from SCN `low` (included) to `high` (excluded)."""

    low: int
    high: int
    rows: TableRows
    encoder: TableEncoder
    quick: Quicks
    lobs: LobFetch | None

    def frame(self, change: RowChange, ts_us: int, scn: Scn) -> Frame:
        before, after, unchanged = self.rows.values(change)
        if unchanged and after is not None:
            unchanged = self._fetched(change, after, unchanged, scn)
        return self.encoder.header, self.encoder.body(change.op, before, after, ts_us, unchanged)

    def _fetched(self, change: RowChange, after: list[Any], unchanged: list[str], scn: Scn) -> list[str]:
        """Read LOBs outside of the row, if configured, into `after`; return the columns that are still unchanged."""
        version, lacking = self.rows.version, self.rows.lacking(change, unchanged)
        elsewhere = [name for name, why in lacking.items() if why == OUT_OF_LINE]
        if elsewhere and self.lobs is not None and self.lobs.fill(version, elsewhere, after, scn):
            unchanged = [name for name in unchanged if name not in elsewhere]
            lacking = {name: why for name, why in lacking.items() if name in unchanged}
        for name, why in lacking.items():
            metrics.NOT_IN_LOG.labels(version.source, version.full_name, name, why).inc()
        return unchanged


class FrameMaker:
    """Converts pairs to frames, by object and table version."""

    def __init__(
        self,
        source: str,
        dictionary: Dictionary,
        encoders: Encoders,
        follows: Follows | None = None,
        lobs: LobFetch | None = None,
    ) -> None:
        """Without `follows`, DDL other than TRUNCATE stops the source. Without `lobs`, LOBs outside of rows are
        `unchanged`.
        """
        self._source = source
        self._lobs = lobs
        self._dictionary = dictionary
        self._encoders = encoders
        self._follows = follows
        #: object and container, as bytes of the pair → the version that was used last
        self._ways: dict[bytes, _Way] = {}
        self._made: dict[TableVersion, tuple[TableRows, TableEncoder, Quicks]] = {}
        #: each table's last version that had a change
        self.seen: dict[str, TableSchema] = SeenVersions()
        self._seen_since: dict[str, int] = {}

    def frames(self, rows: Iterable[bytes], ts_us: int, scn: Scn = NEWEST) -> Iterator[Frame]:
        """The frames of one transaction, in the order of its changes; `scn` is that of its commit."""
        ways, joiner = self._ways, Joiner()
        is_idle = True
        for d in rows:
            way = ways.get(d[:4] + d[32:34])
            if way is None or not way.low <= scn < way.high:
                way = self._learn(d, scn)
                if way is None:
                    continue
            # position of the row change; without one this is the undo, which is not a row operation
            p = 8 + 4 * (d[6] | d[7] << 8)
            if is_idle and not d[4] and (quick := way.quick.get(d[p + 1])) is not None:
                try:
                    frame = quick(d, p, ts_us)
                except (*ERRORS, SourceError):
                    # the slow path reports the error
                    frame = None
                if frame is not None:
                    if type(frame) is tuple:
                        yield frame
                    else:
                        yield from frame
                    continue
            yield from self._plain(joiner, way, scn, d, ts_us)
            is_idle = joiner.is_idle
        joiner.end()

    def _plain(self, joiner: Joiner, way: _Way, scn: Scn, d: bytes, ts_us: int) -> list[Frame]:
        if is_ddl(d):
            return [(way.encoder.header, way.encoder.body("t", None, None, ts_us))]
        try:
            return [way.frame(change, ts_us, scn) for change in joiner.add(d)]
        except NoGroupError as error:
            error.hint = f"{error.hint}; for this table also {way.rows.version.log_statement()}"
            raise self._placed(error, way, scn) from error
        except (SourceError, CodecError) as error:
            raise self._placed(error, way, scn) from error

    def _placed(self, error: SourceError | CodecError, way: _Way, scn: Scn) -> SourceError | CodecError:
        name = way.rows.version.full_name
        if name not in error.what:
            error.what = f"{name}: {error.what}"
            error.args = (error.what,)
        error.source = error.source or self._source
        error.position = error.position or f"SCN {scn}"
        return error

    def is_foreign(self, d: bytes, scn: Scn) -> bool:
        """Whether the row is of a table that is not captured: possible if its object is newer than the dictionary."""
        return self._dictionary.is_foreign(_container(d), int.from_bytes(d[:4], "little"), scn)

    def _learn(self, d: bytes, scn: Scn) -> _Way | None:
        """None: the row's table is not captured."""
        if self.is_foreign(d, scn):
            return None
        version, low, high = self._dictionary.span(_container(d), int.from_bytes(d[:4], "little"), scn)
        if version not in self._made:
            table = self._encoders.versioned(version.schema)
            encoder = self._encoders.encoder(table)
            self._made[version] = (TableRows(version), encoder, quicks(version, encoder))
        rows, encoder, quick = self._made[version]
        self._see(encoder.table, low)
        way = self._ways[d[:4] + d[32:34]] = _Way(low, high, rows, encoder, quick, self._lobs)
        return way

    def altered(self, scn: Scn, data: bytes) -> tuple[bool, bool]:
        """For DDL that is not committed yet: whether it is a change that empties or renames its object, and whether the
        affected tables must be read again at the commit.
        """
        container, object_id, statement = _statement(data)
        if statement is None:
            return False, False
        known = self._dictionary.find(container, object_id, NEWEST)
        is_change = known is not None and statement.effect in (Effect.EMPTIED, Effect.RENAMED)
        if self._follows is not None:
            return is_change, bool(self._follows.names(container, object_id, statement))
        if known is not None and (not is_change or statement.cascades or not _is_truncate(data, statement)):
            raise LogUnknownError(
                f"{known.full_name} was altered ({statement.verb}), and the dictionary is a fixed file",
                source=self._source,
                position=f"SCN {scn}",
                hint="give a dictionary that has the table as it is from this SCN on",
            )
        return is_change, False

    def followed(self, scn: Scn, data: bytes) -> Followed:
        """Process DDL that has committed at `scn`."""
        container, object_id, statement = _statement(data)
        assert self._follows is not None
        assert statement is not None
        found = self._follows.after(container, object_id, statement, scn)
        self.forget()
        self._learn_all(found, scn)
        return found

    def verify(self, scn: Scn) -> Followed | None:
        """All threads are read up to `scn`: the tables that differ from the database's; None: no table does."""
        found = None if self._follows is None else self._follows.verify(scn)
        if found is not None:
            self.forget()
            self._learn_all(found, scn)
        return found

    def _learn_all(self, found: Followed, scn: Scn) -> None:
        for version in found.versions:
            # even without a change: rows get a new column's default without being logged
            self._see(self._encoders.versioned(version.schema), scn + 1)

    def _see(self, table: TableSchema, since: int) -> None:
        """Frames may be made after a later DDL was processed: an older version does not replace a newer one."""
        if since >= self._seen_since.get(table.full_name, 0):
            self._seen_since[table.full_name] = since
            self.seen[table.full_name] = table

    def loaded(self, scn: Scn, data: bytes) -> str | None:
        """The captured table that blocks were loaded into; None: another table."""
        assert self._follows is not None
        return self._follows.loaded(_container(data), int.from_bytes(data[:4], "little"), scn)

    def forget(self) -> None:
        """Clear the cache of versions after a change of the dictionary: their SCN ranges may have changed."""
        self._ways.clear()


def _container(d: bytes) -> int:
    """The container of the first vector."""
    return int.from_bytes(d[32:34], "little" if order_of(d) == "<" else "big")


def _is_truncate(d: bytes, statement: Ddl) -> bool:
    """Whether it is TRUNCATE, by its text or by the kind of statement."""
    return statement.verb.startswith("TRUNCATE") or _ddl_numbers(d)[0] == TRUNCATE_TABLE


def _ddl_numbers(d: bytes) -> tuple[int, int]:
    """The kind of statement, and the number of records with its text."""
    first = fields(d, HEAD.size, order_of(d))[0] if is_ddl(d) else b""
    order: Any = "little" if order_of(d) == "<" else "big"
    return int.from_bytes(first[12:14], order), int.from_bytes(first[20:22], order)


def _statement(d: bytes) -> tuple[int, int, Ddl | None]:
    """Container, object and the parsed statement; None: it cannot change rows."""
    found = fields(d, HEAD.size, order_of(d)) if is_ddl(d) else []
    text = found[_DDL_TEXT].rstrip(b"\0").decode("utf-8", "surrogateescape") if len(found) > _DDL_TEXT else ""
    container, object_id = _container(d), int.from_bytes(d[:4], "little")
    kind, parts = _ddl_numbers(d)
    if kind == TRUNCATE_TABLE and not text:
        return container, object_id, Ddl(Effect.EMPTIED, "TRUNCATE TABLE")
    statement = ddl.parse(text)
    if parts > 1 and (statement is None or statement.effect is Effect.NONE):
        # the text continues in other records, which may contain the clause that changes rows
        verb = statement.verb if statement is not None else "a long statement"
        statement = Ddl(Effect.ROWS, verb, statement.tables if statement is not None else ())
    return container, object_id, statement


class Changes(IteratedChanges):
    """A transaction's frames; each iteration creates them again."""

    __slots__ = ("_maker", "_rows", "_scn", "_ts_us")

    def __init__(self, maker: FrameMaker, rows: Iterable[bytes], ts_us: int, scn: Scn = NEWEST) -> None:
        self._maker = maker
        self._rows = rows
        self._ts_us = ts_us
        self._scn = scn

    def __iter__(self) -> Iterator[Frame]:
        return self._maker.frames(self._rows, self._ts_us, self._scn)
