"""Finds the tangled changes of one state with Spark, and resolves them in its tasks. See `moved_keys/tangles.py`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lowwater.lake.moved_keys.roles import key_values
from lowwater.lake.moved_keys.tangles import FROM, MAYBE, Tangles
from lowwater.lake.schema.adapt import alias, before_alias

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: by (gsn, key): whether the key had a row before
Answers = dict[tuple[Any, ...], bool]
_PLACE = ["_gsn", "_seq"]


def same_key(left: DataFrame, right: DataFrame, key: Sequence[int], prefix: str = "") -> Column:
    """The condition that two rows have the same key. `prefix`: of the key columns of `left`."""
    pairs = (left[f"{prefix}{alias(n)}"].eqNullSafe(right[alias(n)]) for n in key)
    return reduce(lambda a, b: a & b, pairs)


def may_be_tangled(changes: DataFrame, moved: Column) -> bool:
    """Whether any transaction adds a row to any key, and later removes one from any key."""
    from pyspark.sql import functions as F

    adds, takes = F.col("_op").isin("c", "r") | moved, (F.col("_op") == "d") | moved
    found = changes.groupBy("_gsn").agg(
        F.min(F.when(adds, F.col("_seq"))).alias("first"), F.max(F.when(takes, F.col("_seq"))).alias("last")
    )
    return bool(found.where("first < last").limit(1).count())


def tangled_places(changes: DataFrame, key: Sequence[int], moved: Column) -> DataFrame:
    """`_gsn` and `_seq` of all changes of tangled keys."""
    from pyspark.sql import functions as F

    keys = [alias(n) for n in key]
    op = F.col("_op")
    own = changes.select(*_PLACE, *keys, (op.isin("c", "r") | moved).alias("adds"), (op == "d").alias("takes"))
    old = (F.col(before_alias(n)).alias(alias(n)) for n in key)
    left = changes.where(moved).select(*_PLACE, *old, F.lit(False).alias("adds"), F.lit(True).alias("takes"))
    roles = own.union(left)
    first, last = (F.when(F.col(name), F.col("_seq")) for name in ("adds", "takes"))
    groups = roles.groupBy("_gsn", *keys).agg(F.min(first).alias("first"), F.max(last).alias("last"))
    groups = groups.where("first < last").select(
        F.col("_gsn").alias("g__gsn"), *(F.col(name).alias(f"g_{name}") for name in keys)
    )
    is_one = (groups["g__gsn"] == roles["_gsn"]) & same_key(groups, roles, key, "g_")
    return roles.join(groups, is_one, "left_semi").select(*_PLACE).distinct()


class SparkTangles:
    """`rows`: the tangled changes, with all columns and images of the table."""

    def __init__(self, rows: DataFrame, key: Sequence[int], names: Sequence[str]) -> None:
        # a checkpoint, because the rows are used several times
        self._rows, self._key, self._names = rows.repartition("_gsn").localCheckpoint(), list(key), list(names)

    def made(self, answers: Answers | None = None) -> DataFrame:
        """As `Tangles.made`; `answers` to `asks`."""
        from pyspark.sql.types import BooleanType, LongType, StructField, StructType

        key, names = self._key, self._names
        schema = StructType(
            [*self._rows.schema.fields, StructField(MAYBE, BooleanType()), StructField(FROM, LongType())]
        )

        def make(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = _find(batches, key, names)
            if found is not None:
                asks = key_values(found.asks(), ["_gsn", *map(alias, key)])
                existed = None if answers is None and asks else np.array([(answers or {})[ask] for ask in asks], bool)
                yield from found.made(existed).to_batches()

        return self._rows.mapInArrow(make, schema).localCheckpoint()

    def asks(self) -> DataFrame:
        """As `Tangles.asks`."""
        from pyspark.sql.types import StructType

        key, names = self._key, self._names
        schema = StructType([self._rows.schema[name] for name in (*map(alias, key), "_gsn")])

        def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = _find(batches, key, names)
            if found is not None:
                yield from found.asks().to_batches()

        return self._rows.mapInArrow(ask, schema)


def _find(batches: Iterable[pa.RecordBatch], key: list[int], names: list[str]) -> Tangles | None:
    found = list(batches)
    if not found:
        return None
    rows = pa.Table.from_batches(found).sort_by([("_gsn", "ascending"), ("_seq", "ascending")])
    return Tangles.find(rows, key, names)


def answers_of(asks: DataFrame, places: DataFrame, base: DataFrame, key: Sequence[int]) -> Answers:
    """The answers to `asks`. `places`: keys, each with `place` (gsn, seq) and `is_there`: the key has a row there."""
    from pyspark.sql import functions as F

    keys = [alias(n) for n in key]
    asks = asks.distinct().select(F.col("_gsn").alias("a__gsn"), *(F.col(name).alias(f"a_{name}") for name in keys))
    below = same_key(asks, places, key, "a_") & (places["place"]["_gsn"] < asks["a__gsn"])
    of_ask = ["a__gsn", *(f"a_{name}" for name in keys)]
    last = asks.join(places, below, "left").groupBy(*of_ask).agg(F.max_by("is_there", "place").alias("is_there"))
    based = base.select(*keys, F.lit(True).alias("in_base"))
    found = last.join(based, same_key(last, based, key, "a_"), "left")
    answer = F.coalesce("is_there", "in_base", F.lit(False))
    rows = found.select(*of_ask, answer.alias("answer")).toArrow()
    return dict(zip(key_values(rows, of_ask), rows["answer"].to_pylist(), strict=True))
