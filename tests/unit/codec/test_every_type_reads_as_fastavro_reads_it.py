"""Any row of any table, through the compiled encoder: an Avro reader gives it back, an Avro writer has its bytes."""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.codec import table as types
from lowwater.codec.avro import OPS, change_schema
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import Column, ColumnKind, TableSchema, Type
from lowwater.records.ids import SchemaId
from lowwater.records.wire import HEADER_SIZE, schema_id_of

_text = st.text(st.characters(codec="utf-8"), max_size=12)
#: away from the ends of datetime, where a zone would push it over the edge
_EARLY, _LATE = dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29)
_zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: dt.timezone(dt.timedelta(minutes=minutes)))
_EPOCH = dt.datetime(1970, 1, 1)
ts_micros = st.integers(-62_000_000_000_000_000, 253_000_000_000_000_000)


def _int64_and_its_edges() -> st.SearchStrategy[int]:
    edges = st.integers(0, 63).flatmap(lambda bits: st.integers(-2, 1).map(lambda near: (1 << bits) + near))
    signed = st.tuples(edges, st.booleans()).map(lambda pair: -pair[0] if pair[1] else pair[0])
    return signed.filter(lambda n: -(1 << 63) <= n < 1 << 63) | st.integers(-(1 << 63), (1 << 63) - 1)


def _decimals(type_: Type) -> st.SearchStrategy[Decimal]:
    limit = 10**type_.precision - 1
    context = Context(prec=type_.precision + 1)
    return st.integers(-limit, limit).map(lambda n: context.scaleb(Decimal(n), -type_.scale))


_VALUES: dict[ColumnKind, st.SearchStrategy[Any]] = {
    ColumnKind.BOOLEAN: st.booleans(),
    ColumnKind.INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    ColumnKind.INT64: _int64_and_its_edges(),
    ColumnKind.FLOAT32: st.floats(width=32, allow_nan=False),
    ColumnKind.FLOAT64: st.floats(allow_nan=False),
    ColumnKind.STRING: _text | st.integers(8_180, 8_200).map(lambda n: "é" * (n // 2)),
    ColumnKind.BYTES: st.binary(max_size=12) | st.integers(8_180, 8_200).map(bytes),
    ColumnKind.DATE: st.dates(),
    ColumnKind.TIME: st.times(),
    ColumnKind.TIMESTAMP: st.datetimes(_EARLY, _LATE),
    ColumnKind.TIMESTAMPTZ: st.datetimes(_EARLY, _LATE, timezones=_zones),
    ColumnKind.UUID: st.uuids(),
    ColumnKind.JSON: _text.map(lambda text: f'{{"a": "{text}"}}'),
}


def values_of(type_: Type) -> st.SearchStrategy[Any]:
    if type_.kind is ColumnKind.DECIMAL:
        return _decimals(type_)
    if type_.kind is ColumnKind.ARRAY:
        assert type_.item is not None
        return st.lists(st.none() | values_of(type_.item), max_size=4)
    return _VALUES[type_.kind]


_simple_types = st.sampled_from([Type(kind) for kind in _VALUES])
_decimal_types = st.integers(1, 60).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: types.decimal(precision, scale))
)
all_types = st.recursive(_simple_types | _decimal_types, lambda item: item.map(types.array), max_leaves=3)


@dataclass(frozen=True)
class Sample:
    table: TableSchema
    before: list[Any] | None
    after: list[Any] | None


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    wanted = draw(st.lists(all_types, min_size=1, max_size=6))
    columns = tuple(Column(f"C{n}", type_) for n, type_ in enumerate(wanted))
    rows = st.tuples(*(st.none() | values_of(type_) for type_ in wanted)).map(list)
    table = TableSchema("db", "BANK", "T", 1, columns)
    return Sample(table, draw(st.none() | rows), draw(st.none() | rows))


def _read(table: TableSchema, value: bytes) -> dict[str, Any]:
    schema = fastavro.parse_schema(change_schema(table))
    stream = io.BytesIO(value[HEADER_SIZE:])
    record = fastavro.schemaless_reader(stream, schema, None)
    assert stream.read() == b"", "nothing is left over"
    assert isinstance(record, dict)
    return record


def _row(table: TableSchema, row: list[Any] | None) -> dict[str, Any] | None:
    return None if row is None else {c.name: v for c, v in zip(table.columns, row, strict=True)}


@given(samples(), st.integers(1, 1 << 40), st.sampled_from(OPS), ts_micros, st.lists(_text, max_size=2))
def test_any_change_is_read_as_it_was_and_written_as_fastavro_writes_it(
    sample: Sample, seq: int, op: str, ts_us: int, unchanged: list[str]
) -> None:
    encoder = TableEncoder(sample.table, SchemaId(12_345))
    value = encoder.value(seq, op, sample.before, sample.after, ts_us, unchanged)
    assert schema_id_of(value) == 12_345
    record = {
        "seq": seq,
        "op": op,
        "before": _row(sample.table, sample.before),
        "after": _row(sample.table, sample.after),
        "unchanged": unchanged,
        "ts_us": (_EPOCH + dt.timedelta(microseconds=ts_us)).replace(tzinfo=dt.UTC),
    }
    assert _read(sample.table, value) == record
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(change_schema(sample.table)), record)
    assert value[HEADER_SIZE:] == out.getvalue()


@given(samples(), st.lists(ts_micros, min_size=1, max_size=3))
def test_the_quick_ways_for_whole_rows_have_the_same_bytes(sample: Sample, times: list[int]) -> None:
    encoder = TableEncoder(sample.table, SchemaId(1))
    empty = [None] * len(sample.table.columns)
    before, after = sample.before or empty, sample.after or empty
    for ts_us in (*times, times[-1], times[0]):
        assert encoder.insert(after, ts_us) == encoder.body("c", None, after, ts_us)
        assert encoder.delete(before, ts_us) == encoder.body("d", before, None, ts_us)
        assert encoder.update([*before, *after], ts_us) == encoder.body("u", before, after, ts_us)


def _one(type_: Type, value: Any) -> bytes:
    table = TableSchema("db", "BANK", "T", 1, (Column("C", type_),))
    return TableEncoder(table, SchemaId(1)).value(1, "c", None, [value], 0)


@dataclass(frozen=True)
class OtherForm:
    """A second way in which a source may hand over a value."""

    test_name: str
    type: Type
    value: st.SearchStrategy[Any]
    other: Callable[[Any], Any]


OTHER_FORMS = (
    OtherForm("date_as_days", types.DATE, st.dates(), lambda d: d.toordinal() - dt.date(1970, 1, 1).toordinal()),
    OtherForm(
        "time_as_micros", types.TIME, st.times(),
        lambda t: ((t.hour * 60 + t.minute) * 60 + t.second) * 1_000_000 + t.microsecond,
    ),
    OtherForm(
        "timestamp_as_micros", types.TIMESTAMP, st.datetimes(), lambda t: (t - _EPOCH) // dt.timedelta(microseconds=1)
    ),
    OtherForm(
        "instant_as_micros", types.TIMESTAMPTZ, st.datetimes(timezones=st.just(dt.UTC)),
        lambda t: (t.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1),
    ),
    OtherForm("uuid_as_text", types.UUID, st.uuids(), str),
    OtherForm("uuid_in_capitals", types.UUID, st.uuids(), lambda u: str(u).upper()),
    OtherForm("whole_decimal_as_int", types.decimal(20, 3), st.integers(-(10**17) + 1, 10**17 - 1), Decimal),
    OtherForm(
        "decimal_with_other_exponent", types.decimal(38, 2), st.integers(-(10**36) + 1, 10**36 - 1),
        lambda n: Decimal(n).scaleb(0) if abs(n) < 10**28 else Decimal(f"{n}.000000"),
    ),
)  # fmt: skip


@pytest.mark.parametrize("form", OTHER_FORMS, ids=lambda form: form.test_name)
@given(data=st.data())
def test_another_form_of_the_same_value_has_the_same_bytes(form: OtherForm, data: st.DataObject) -> None:
    value = data.draw(form.value)
    assert _one(form.type, value) == _one(form.type, form.other(value))


def test_a_value_is_never_flattened_into_text() -> None:
    table = TableSchema(
        "db", "BANK", "T", 1,
        (
            Column("D", types.decimal(38, 10)), Column("W", types.TIMESTAMP), Column("I", types.TIMESTAMPTZ),
            Column("U", types.UUID), Column("A", types.array(types.array(types.INT32))),
        ),
    )  # fmt: skip
    row = [
        Decimal("9999999999999999999999999999.9999999999"),
        dt.datetime(2024, 2, 29, 23, 59, 59, 999_999),
        dt.datetime(2024, 2, 29, 23, 59, 59, 1, tzinfo=dt.UTC),
        uuid.UUID(int=(1 << 128) - 1),
        [[1, None], [], None],
    ]
    value = TableEncoder(table, SchemaId(1)).value(1, "r", None, row, 0)
    assert list(_read(table, value)["after"].values()) == row
