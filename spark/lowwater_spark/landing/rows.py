"""Converts a decoded block to the rows of a `stream/` file, by whole columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal, Inexact
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lowwater.lake.schema.columns import CDC_FIELDS, ORDER_TYPE, LakeColumn, LakeTable, lake_name
from lowwater.records.types import Commit
from lowwater.records.wire import HEADER_SIZE

Ints = npt.NDArray[np.int64]

_INSTANT = pa.timestamp("us", tz="UTC")
_EXACT = Context(prec=100, traps=[Inexact])
_OP, _SEQ, _UNCHANGED, _TS = "op", "seq", "unchanged", "ts_us"


def whole_numbers(column: pa.Array) -> Ints:
    found: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return found


def unsigned(column: pa.Array) -> npt.NDArray[np.uint64]:
    """Converts values of eight bytes each, big-endian."""
    _, offsets, data = column.buffers()
    start = int(np.frombuffer(offsets, dtype=np.int32, count=1, offset=4 * column.offset)[0])
    return np.frombuffer(data, dtype=">u8", count=len(column), offset=start).astype(np.uint64)


def varints(data: npt.NDArray[np.uint8], at: Ints) -> tuple[Ints, Ints]:
    """Decodes the Avro integers that begin at the positions `at`; returns them and the positions after them."""
    value = np.zeros(len(at), dtype=np.uint64)
    at, left, shift = at.copy(), np.arange(len(at)), 0
    while len(left):
        byte = data[at[left]].astype(np.uint64)
        value[left] |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        at[left] += 1
        left, shift = left[byte > 0x7F], shift + 7
    signed = (value >> np.uint64(1)).astype(np.int64) ^ -(value & np.uint64(1)).astype(np.int64)
    return signed, at


def order_keys(column: pa.Array) -> tuple[Ints, Ints]:
    """gsn and seq from the keys of the ordered topic."""
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32, count=len(column), offset=4 * column.offset).astype(np.int64)
    raw = np.frombuffer(data, dtype=np.uint8)
    gsn, behind = varints(raw, starts + HEADER_SIZE)
    seq, _ = varints(raw, behind)
    return gsn, seq


@dataclass
class Commits:
    """The commits of a block's transactions, in gsn order, as columns."""

    gsn: Ints
    source: pa.Array
    generation: Ints
    txid: pa.Array
    thread: pa.Array
    order: pa.Array
    commit_ts: pa.Array
    changes: Ints
    checksum: Ints

    @classmethod
    def of_column(cls, gsn: Ints, found: pa.StructArray) -> Commits:
        field = dict(zip([f.name for f in found.type], found.flatten(), strict=True))
        major, minor = field["order"].flatten()
        pair = [pa.array(unsigned(major)), pa.array(unsigned(minor))]
        return cls(
            gsn,
            field["source"],
            whole_numbers(field["generation"]),
            field["txid"],
            field["thread"],
            pa.StructArray.from_arrays(pair, fields=list(ORDER_TYPE)),
            field["commit_ts_us"].cast(_INSTANT),
            whole_numbers(field["changes"]),
            whole_numbers(field["checksum"]),
        )

    @classmethod
    def of(cls, known: dict[int, Commit]) -> Commits:
        found = sorted(known.items())
        orders = [{"major": c.order.major, "minor": c.order.minor} for _, c in found]
        return cls(
            np.array([gsn for gsn, _ in found], dtype=np.int64),
            pa.array([c.source for _, c in found], pa.string()),
            np.array([c.generation for _, c in found], dtype=np.int64),
            pa.array([c.txid for _, c in found], pa.string()),
            pa.array([c.thread for _, c in found], pa.int64()),
            pa.array(orders, ORDER_TYPE),
            pa.array([c.commit_ts_us for _, c in found], pa.int64()).cast(_INSTANT),
            np.array([c.changes for _, c in found], dtype=np.int64),
            np.array([c.checksum for _, c in found], dtype=np.int64),
        )

    def source_of(self, gsn: int) -> tuple[str, int]:
        """The source and the generation of the transaction `gsn`, which must be in this block."""
        row = int(np.searchsorted(self.gsn, gsn))
        return self.source[row].as_py(), int(self.generation[row])

    def generations(self) -> dict[tuple[str, int], int]:
        """Source and generation → its first gsn in this block."""
        if not len(self.gsn):
            return {}
        names = self.source.dictionary_encode()
        numbers, places = np.unique(self.generation, return_inverse=True)
        pairs = whole_numbers(names.indices) * len(numbers) + places
        found, first = np.unique(pairs, return_index=True)
        sources = names.dictionary.to_pylist()
        return {
            (sources[pair // len(numbers)], int(numbers[pair % len(numbers)])): int(self.gsn[row])
            for pair, row in zip(found.tolist(), first.tolist(), strict=True)
        }


def _wide_decimals(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Converts decimals beyond 38 digits, which are read as bytes, value by value: they are rare."""

    return pa.array([None if v is None else exact_decimal(v, type_.scale) for v in column.to_pylist()], type_)


def exact_decimal(unscaled: bytes, scale: int) -> Decimal:
    """Converts the bytes of an Avro decimal."""
    # the default context would round to 28 digits
    return _EXACT.scaleb(Decimal(int.from_bytes(unscaled, "big", signed=True)), -scale)


def _typed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    if column.type.equals(type_):
        return column
    if pa.types.is_decimal256(type_) and pa.types.is_binary(column.type):
        return _wide_decimals(column, type_)
    if pa.types.is_list(type_):
        # also if only the name of the item's field differs
        items = _typed(column.values, type_.value_type)
        return pa.ListArray.from_arrays(column.offsets, items, type=type_, mask=column.is_null())
    return column.cast(type_)


def _row(image: pa.StructArray, columns: Iterable[LakeColumn]) -> list[pa.Array]:
    by_name = dict(zip([f.name for f in image.type], image.flatten(), strict=True))
    return [_typed(by_name[c.avro_name], c.field.type) for c in columns]


def unchanged_names(lists: pa.ListArray) -> pa.Array:
    """The unchanged columns by their names in the lake. Null if the log contained all columns, the common case."""
    is_empty = pc.equal(pc.list_value_length(lists), 0)
    if pc.all(is_empty).as_py():
        return pa.nulls(len(lists), pa.list_(pa.string()))
    if any(lake_name(name) != name for name in pc.unique(lists.flatten()).to_pylist()):
        lists = pa.array([[lake_name(name) for name in names] for names in lists.to_pylist()], pa.list_(pa.string()))
    return pc.if_else(is_empty, pa.scalar(None, pa.list_(pa.string())), lists.cast(pa.list_(pa.string())))


def stream_rows(table: LakeTable, changes: pa.StructArray, gsn: Ints, commits: Commits) -> pa.Table:
    """Rows of a `stream/` file. `changes`: of this table only; `gsn`: of each; `commits`: contains all of these gsn."""
    part: dict[str, Any] = dict(zip([f.name for f in changes.type], changes.flatten(), strict=True))
    place = pa.array(np.searchsorted(commits.gsn, gsn))
    before = _row(part["before"], table.columns)
    after = _row(part["after"], table.columns)
    is_delete = pc.equal(part[_OP], "d")
    if pc.any(is_delete).as_py():
        after = [pc.if_else(is_delete, old, new) for old, new in zip(before, after, strict=True)]
    # nullability of list items and field metadata are in the field, so the fields are given, not derived
    image = pa.StructArray.from_arrays(before, fields=table.row_fields, mask=part["before"].is_null())
    cdc = [
        part[_OP],
        pa.array(gsn),
        part[_SEQ],
        commits.txid.take(place),
        commits.thread.take(place),
        commits.order.take(place),
        commits.commit_ts.take(place),
        part[_TS].cast(_INSTANT),
        unchanged_names(part[_UNCHANGED]),
    ]
    assert len(cdc) == len(CDC_FIELDS)
    return pa.Table.from_arrays([*cdc, image, *after], schema=table.stream_schema)
