"""From captured pairs to frames: what a transaction hands over, made when it is asked for.

Nothing is decoded before its transaction has committed, so what is rolled back costs little, and a large transaction
is held as the log's own bytes.

A transaction has one version of each table, that of its commit: a table is locked by its changes until then, and DDL
waits for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import TableSchema
from lowwater.errors import CodecError, LogUnknownError, SourceError
from lowwater_extractor.source import Encoders, Frame
from lowwater_extractor.sources.oracle import metrics
from lowwater_extractor.sources.oracle.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.pair_fields import fields, order_of
from lowwater_extractor.sources.oracle.pairs import NoGroupError
from lowwater_extractor.sources.oracle.quick_rows import Quicks, quicks
from lowwater_extractor.sources.oracle.redo.codes import HEAD
from lowwater_extractor.sources.oracle.rows import Joiner, RowChange, is_ddl
from lowwater_extractor.sources.oracle.table_rows import OUT_OF_LINE, TableRows
from lowwater_extractor.sources.oracle.values import ERRORS

#: the newest version of each table
NEWEST = (1 << 64) - 1

#: the kind of statement in a DDL's record
TRUNCATE_TABLE = 85

#: (container, object, SCN): takes care that the dictionary has what the object is from that SCN on
OnDdl = Callable[[int, int, int], None]


@dataclass(slots=True)
class _Way:
    """How the changes of one object become frames, from one SCN on and before another."""

    low: int
    high: int
    rows: TableRows
    encoder: TableEncoder
    quick: Quicks
    lobs: LobFetch | None

    def frame(self, change: RowChange, ts_us: int, scn: int) -> Frame:
        before, after, unchanged = self.rows.values(change)
        if unchanged and after is not None:
            unchanged = self._fetched(change, after, unchanged, scn)
        return self.encoder.header, self.encoder.body(change.op, before, after, ts_us, unchanged)

    def _fetched(self, change: RowChange, after: list[Any], unchanged: list[str], scn: int) -> list[str]:
        """What the row still lacks once the LOBs that lie elsewhere were asked for, if they are."""
        version, lacking = self.rows.version, self.rows.lacking(change, unchanged)
        elsewhere = [name for name, why in lacking.items() if why == OUT_OF_LINE]
        if elsewhere and self.lobs is not None and self.lobs.fill(version, elsewhere, after, scn):
            unchanged = [name for name in unchanged if name not in elsewhere]
            lacking = {name: why for name, why in lacking.items() if name in unchanged}
        for name, why in lacking.items():
            metrics.NOT_IN_LOG.labels(version.source, version.full_name, name, why).inc()
        return unchanged


class FrameMaker:
    """Knows for each object how its pairs become frames."""

    def __init__(
        self,
        source: str,
        dictionary: Dictionary,
        encoders: Encoders,
        on_ddl: OnDdl | None = None,
        lobs: LobFetch | None = None,
    ) -> None:
        """`lobs`: None: a LOB that lies outside of its row is `unchanged`."""
        self._source = source
        self._lobs = lobs
        self._dictionary = dictionary
        self._encoders = encoders
        self._on_ddl = on_ddl
        #: object and container, as the pair has them → the version that was used last
        self._ways: dict[bytes, _Way] = {}
        self._made: dict[TableVersion, tuple[TableRows, TableEncoder, Quicks]] = {}
        #: each table's last version that a change came for
        self.seen: dict[str, TableSchema] = {}

    def frames(self, rows: Iterable[bytes], ts_us: int, scn: int = NEWEST) -> Iterator[Frame]:
        """Of one transaction, in the order of its changes; `scn` is that of its commit."""
        ways, joiner = self._ways, Joiner()
        is_idle = True
        for d in rows:
            way = ways.get(d[:4] + d[32:34])
            if way is None or not way.low <= scn < way.high:
                way = self._learn(d, scn)
                if way is None:
                    continue
            # where the row change begins; without one this is the undo, which is no row operation
            p = 8 + 4 * (d[6] | d[7] << 8)
            if is_idle and not d[4] and (quick := way.quick.get(d[p + 1])) is not None:
                try:
                    frame = quick(d, p, ts_us)
                except ERRORS:
                    # the plain way explains it
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

    def _plain(self, joiner: Joiner, way: _Way, scn: int, d: bytes, ts_us: int) -> list[Frame]:
        if is_ddl(d):
            return [(way.encoder.header, way.encoder.body("t", None, None, ts_us))]
        try:
            return [way.frame(change, ts_us, scn) for change in joiner.add(d)]
        except NoGroupError as error:
            error.hint = f"{error.hint}; for this table also {way.rows.version.mending()}"
            raise self._placed(error, way, scn) from error
        except (SourceError, CodecError) as error:
            raise self._placed(error, way, scn) from error

    def _placed(self, error: SourceError | CodecError, way: _Way, scn: int) -> SourceError | CodecError:
        name = way.rows.version.full_name
        if name not in error.what:
            error.what = f"{name}: {error.what}"
            error.args = (error.what,)
        error.source = error.source or self._source
        error.position = error.position or f"SCN {scn}"
        return error

    def is_foreign(self, d: bytes, scn: int) -> bool:
        """Is the row one of a table that is not captured? Its object is younger than the dictionary."""
        return self._dictionary.is_foreign(_container(d), int.from_bytes(d[:4], "little"), scn)

    def _learn(self, d: bytes, scn: int) -> _Way | None:
        """None: the row's table is not captured."""
        if self.is_foreign(d, scn):
            return None
        version, low, high = self._dictionary.span(_container(d), int.from_bytes(d[:4], "little"), scn)
        if version not in self._made:
            table = self._encoders.versioned(version.schema)
            encoder = self._encoders.encoder(table)
            self._made[version] = (TableRows(version), encoder, quicks(version, encoder))
        rows, encoder, quick = self._made[version]
        self.seen[encoder.table.full_name] = encoder.table
        way = self._ways[d[:4] + d[32:34]] = _Way(low, high, rows, encoder, quick, self._lobs)
        return way

    def altered(self, scn: int, data: bytes) -> bool:
        """DDL: of a captured object the dictionary needs what it is from now on. True: it is a change, a TRUNCATE."""
        object_id = int.from_bytes(data[:4], "little")
        container = _container(data)
        if self._dictionary.find(container, object_id, NEWEST) is None:
            return False
        if _ddl_type(data) == TRUNCATE_TABLE:
            # rows lie elsewhere from now on, the table is the same
            return True
        if self._on_ddl is None:
            version = self._dictionary.table(container, object_id, NEWEST)
            raise LogUnknownError(
                f"{version.full_name} was altered, and the dictionary does not follow",
                source=self._source,
                position=f"SCN {scn}",
                hint="give a dictionary that has the table as it is from this SCN on",
            )
        self._on_ddl(container, object_id, scn)
        self.forget()
        return False

    def forget(self) -> None:
        """The dictionary has changed: versions end where they did not before."""
        self._ways.clear()


def _container(d: bytes) -> int:
    """Of the first vector."""
    return int.from_bytes(d[32:34], "little" if order_of(d) == "<" else "big")


def _ddl_type(d: bytes) -> int:
    first = fields(d, HEAD.size, order_of(d))[0] if is_ddl(d) else b""
    return int.from_bytes(first[12:14], "little" if order_of(d) == "<" else "big")


class Changes:
    """A transaction's frames; each iteration makes them anew."""

    __slots__ = ("_maker", "_rows", "_scn", "_ts_us")

    def __init__(self, maker: FrameMaker, rows: Iterable[bytes], ts_us: int, scn: int = NEWEST) -> None:
        self._maker = maker
        self._rows = rows
        self._ts_us = ts_us
        self._scn = scn

    def __iter__(self) -> Iterator[Frame]:
        return self._maker.frames(self._rows, self._ts_us, self._scn)
