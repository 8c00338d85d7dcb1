"""From row images in the log to frames: what a transaction hands over, encoded when it is asked for.

Nothing is encoded before its transaction has committed, so what is rolled back costs little, and a large
transaction is held as the log's compact bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lowwater.codec.encoder import Body, WholeRow
from lowwater.errors import LogUnknownError
from lowwater_extractor.source import Encoders, Frame
from lowwater_extractor.sources.simulated_rac.log import ARGUMENT, OPERATION, OPERATIONS
from lowwater_extractor.sources.simulated_rac.rows import Decoded, RowCodec, table_from_json
from lowwater_extractor.spill import Segment, SpillFile

#: the code in front of a row's images
CODE_BYTES = 4
#: about what a frame has more than the row images in the log
FRAME_MORE_BYTES = 24

#: how rows of one code become frames: (struct of all images, decimals in them, encoder, wire header) for whole rows
#: of fixed width, (None, op, decoder, encoder, wire header) for all others
_Fixed = tuple[Callable[[bytes, int], tuple[Any, ...]], list[tuple[int, Mapping[int, Any]]], WholeRow, bytes]
_Other = tuple[str, Callable[[bytes, int], Decoded], Body, bytes]


class FrameMaker:
    """Knows for each code how its rows become frames; asks for the dictionary again on an unknown table."""

    def __init__(self, source: str, tables: Callable[[], dict[int, dict[str, Any]]], encoders: Encoders) -> None:
        self._source = source
        self._tables = tables
        self._encoders = encoders
        self._known: dict[int, dict[str, Any]] = {}
        self._fixed: dict[bytes, _Fixed] = {}
        self._other: dict[bytes, _Other] = {}

    def frames(self, rows: Iterable[bytes], ts_us: int) -> Iterator[Frame]:
        fixed = self._fixed
        for raw in rows:
            way = fixed.get(raw[:CODE_BYTES])
            if way is None:
                yield self._frame(raw, ts_us)
                continue
            unpack, decimals, write, header = way
            row: Any = unpack(raw, CODE_BYTES)
            if decimals:
                row = list(row)
                for at, values in decimals:
                    row[at] = values[row[at]]
            yield header, write(row, ts_us)

    def _frame(self, raw: bytes, ts_us: int) -> Frame:
        """A row of a code that is new, or whose width is not fixed."""
        code = raw[:CODE_BYTES]
        if code not in self._other:
            self._learn(code)
            if code in self._fixed:
                return next(self.frames((raw,), ts_us))
        op, decode, body, header = self._other[code]
        before, after = decode(raw, CODE_BYTES)
        return header, body(op, before, after, ts_us)

    def _learn(self, packed: bytes) -> None:
        code = int.from_bytes(packed, "little")
        op = OPERATIONS.get(code & OPERATION)
        number = code & ARGUMENT
        if number not in self._known:
            self._known = self._tables()
        if op is None or number not in self._known:
            raise LogUnknownError(
                f"a row record has code {code:08x}, table object {number}: not in the dictionary",
                source=self._source,
            )
        table = table_from_json(self._source, self._known[number])
        codec = RowCodec(table)
        encoder = self._encoders.encoder(table)
        if not codec.fixed:
            self._other[packed] = (op, codec.reader(op), encoder.body, encoder.header)
            return
        unpack = (codec.two if op == "u" else codec.one).unpack_from
        places = (0, codec.width) if op == "u" else (0,)
        decimals: list[tuple[int, Mapping[int, Any]]] = [
            (base + at, values) for base in places for at, _, values in codec.decimals
        ]
        write = {"c": encoder.insert, "u": encoder.update, "d": encoder.delete}[op]
        self._fixed[packed] = (unpack, decimals, write, encoder.header)


class Rows:
    """The rows of one transaction in one thread: first what was spilled, then what is in memory."""

    __slots__ = ("rows", "scns", "spilled")

    def __init__(self, rows: list[bytes], scns: list[int] | None, spilled: SpillFile | None) -> None:
        self.rows = rows
        self.scns = scns
        self.spilled = spilled

    def __iter__(self) -> Iterator[bytes]:
        if self.spilled is not None:
            for rows, _ in self.spilled:
                yield from rows
        yield from self.rows

    def placed(self, thread: int) -> Iterator[tuple[int, int, int, bytes]]:
        """With what orders them among the rows of other threads: (scn, thread, number)."""
        number = 0
        segments: Iterable[Segment] = () if self.spilled is None else self.spilled
        for rows, scns in segments:
            for scn, raw in zip(scns, rows, strict=True):
                yield scn, thread, number, raw
                number += 1
        for scn, raw in zip(self.scns or (), self.rows, strict=True):
            yield scn, thread, number, raw
            number += 1


class MergedRows:
    """The rows of one transaction in several threads: by SCN, then thread.

    A change that follows one in another thread has a higher SCN, so this is the order in which they were made,
    however the threads were read.
    """

    __slots__ = ("_parts",)

    def __init__(self, parts: list[tuple[int, Rows]]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        for *_, raw in heapq.merge(*(rows.placed(thread) for thread, rows in self._parts)):
            yield raw


class Changes:
    """A transaction's frames; each iteration makes them anew."""

    __slots__ = ("_maker", "_rows", "_ts_us")

    def __init__(self, maker: FrameMaker, rows: Iterable[bytes], ts_us: int) -> None:
        self._maker = maker
        self._rows = rows
        self._ts_us = ts_us

    def __iter__(self) -> Iterator[Frame]:
        return self._maker.frames(self._rows, self._ts_us)
