"""A value that does not fit its type is an error that says where, and never what: a mask may be there to hide it."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest

from lowwater.codec import table as types
from lowwater.codec.encoder import TableEncoder
from lowwater.codec.table import Column, TableSchema, Type
from lowwater.errors import CodecError
from lowwater.records.ids import SchemaId

DAY_US = 86_400_000_000


@dataclass(frozen=True)
class Misfit:
    type: Type
    value: Any

    @property
    def test_name(self) -> str:
        return f"{self.type.kind}-{str(self.value)[:20]}"


_AWARE = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
MISFITS = (
    Misfit(types.INT32, 1 << 31),
    Misfit(types.INT32, -(1 << 31) - 1),
    Misfit(types.INT32, 1 << 70),
    Misfit(types.INT32, "secret"),
    Misfit(types.INT32, 1.5),
    Misfit(types.INT64, 1 << 63),
    Misfit(types.INT64, -(1 << 63) - 1),
    Misfit(types.INT64, -(1 << 70)),
    Misfit(types.FLOAT32, 1e39),
    Misfit(types.FLOAT32, "secret"),
    Misfit(types.FLOAT64, "secret"),
    Misfit(types.decimal(5, 2), Decimal("1000")),
    Misfit(types.decimal(5, 2), Decimal("-1000.00")),
    Misfit(types.decimal(5, 2), 1000),
    Misfit(types.decimal(5, 2), Decimal("1.234")),
    Misfit(types.decimal(5, 2), Decimal("1E-30")),
    Misfit(types.decimal(38, 0), Decimal(10**38)),
    Misfit(types.decimal(5, 2), Decimal("NaN")),
    Misfit(types.decimal(5, 2), Decimal("-Infinity")),
    Misfit(types.decimal(5, 2), "secret"),
    Misfit(types.decimal(5, 2), 1.5),
    Misfit(types.STRING, 5),
    Misfit(types.STRING, bytearray(b"secret")),
    Misfit(types.STRING, "\ud800"),
    Misfit(types.JSON, {"secret": 1}),
    Misfit(types.BYTES, "secret"),
    Misfit(types.BYTES, 5),
    Misfit(types.DATE, _AWARE),
    Misfit(types.DATE, "2024-01-01"),
    Misfit(types.DATE, 1 << 31),
    Misfit(types.TIME, dt.time(1, tzinfo=dt.UTC)),
    Misfit(types.TIME, DAY_US),
    Misfit(types.TIME, -1),
    Misfit(types.TIMESTAMP, _AWARE),
    Misfit(types.TIMESTAMP, 1 << 63),
    Misfit(types.TIMESTAMP, "secret"),
    Misfit(types.TIMESTAMPTZ, _AWARE.replace(tzinfo=None)),
    Misfit(types.TIMESTAMPTZ, -(1 << 63) - 1),
    Misfit(types.UUID, "secret"),
    Misfit(types.UUID, 5),
    Misfit(types.array(types.INT32), [1, 1 << 31]),
    Misfit(types.array(types.STRING), "secret"),
    Misfit(types.array(types.INT32), 5),
)


def _encoder(type_: Type) -> TableEncoder:
    columns = (Column("FIRST", types.INT64), Column("MISFIT", type_), Column("LAST", types.STRING))
    return TableEncoder(TableSchema("db", "BANK", "T", 1, columns), SchemaId(1))


@pytest.mark.parametrize("misfit", MISFITS, ids=lambda misfit: misfit.test_name)
@pytest.mark.parametrize("side", ["before", "after"])
def test_a_misfit_is_an_error_that_names_its_column_and_hides_its_value(misfit: Misfit, side: str) -> None:
    row = [1, misfit.value, "x"]
    before, after = (row, [1, None, "x"]) if side == "before" else ([1, None, "x"], row)
    with pytest.raises(CodecError) as caught:
        _encoder(misfit.type).value(1, "u", before, after, 0)
    assert caught.value.what.startswith("BANK.T.MISFIT ")
    assert caught.value.source == "db"
    assert "secret" not in str(caught.value)


def test_a_decimal_with_a_monstrous_exponent_is_refused_before_it_is_written_out() -> None:
    """Its digits would fill the memory."""
    with pytest.raises(CodecError, match="MISFIT"):
        _encoder(types.decimal(38, 10)).value(1, "c", None, [1, Decimal("1E+999999999"), "x"], 0)


def test_a_row_of_another_width_says_both_widths() -> None:
    with pytest.raises(CodecError, match="a row of 2 values for 3 columns"):
        _encoder(types.INT32).value(1, "c", None, [1, 2], 0)


def test_an_unknown_operation_is_named() -> None:
    with pytest.raises(CodecError, match="no such operation: 'x'"):
        _encoder(types.INT32).value(1, "x", None, [1, 2, "x"], 0)


def test_a_null_where_there_is_never_one_is_refused_in_a_whole_row_and_not_in_a_key() -> None:
    columns = (Column("ID", types.INT64, nullable=False), Column("A", types.INT64, nullable=False))
    table = TableSchema("s", "n", "t", 1, columns)
    encoder = TableEncoder(table, SchemaId(1))
    assert encoder.body("d", (1, None), None, 0), "`before` may hold only a key"
    with pytest.raises(CodecError, match="A is null, but the source declares it NOT NULL"):
        encoder.insert((1, None), 0)
