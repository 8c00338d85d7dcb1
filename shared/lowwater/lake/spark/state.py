"""A table's state as Spark expressions: rows do not pass through the driver."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from lowwater.lake.chain.manifest import File
from lowwater.lake.moved_keys.suspects import Suspects, find_suspects
from lowwater.lake.moved_keys.tangles import FROM, MAYBE
from lowwater.lake.read.state import no_key
from lowwater.lake.read.state_plan import StatePlan
from lowwater.lake.schema.adapt import CDC_TYPES, UNCHANGED, alias, before_alias
from lowwater.lake.spark.frames import files_frame, spark_type
from lowwater.lake.spark.tangles import SparkTangles, answers_of, may_be_tangled, same_key, tangled_places
from lowwater.lake.store.base import Store

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def state_frame(session: SparkSession, store: Store, plan: StatePlan, names: Sequence[str]) -> DataFrame:
    return _State(session, store, plan, names).frame()


class _State:
    def __init__(self, session: SparkSession, store: Store, plan: StatePlan, names: Sequence[str]) -> None:
        self._session, self._store, self._plan, self._names = session, store, plan, list(names)
        by_name = {column.name: number for number, column in enumerate(plan.union.columns)}
        self._aliases = {name: alias(by_name[name]) if name in by_name else name for name in names}
        wanted = {by_name[name] for name in names if name in by_name}
        self._columns = sorted(wanted | set(plan.key))
        self._fills = any(file.unchanged_rows for file in (*plan.changes, *plan.over))
        asked = [name for name in names if name in CDC_TYPES]
        self._cdc = list(dict.fromkeys(["_op", "_gsn", "_seq", *([UNCHANGED] if self._fills else []), *asked]))
        #: columns of the rows in intermediate results
        self._payload = [*self._cdc, *map(alias, self._columns)]
        self._keys = [alias(n) for n in plan.key]
        self._has_maybe = False

    def frame(self) -> DataFrame:
        from pyspark.sql import functions as F

        rows = self._latest() if self._keys else self._inserts()
        return rows.select(*(F.col(self._aliases[name]).alias(name) for name in self._names))

    def _read(self, files: Sequence[File], before: Sequence[int] = ()) -> DataFrame:
        return files_frame(self._session, self._store, self._plan.union, files, self._cdc, self._columns, before)

    def _events(self, before: Sequence[int] = ()) -> DataFrame:
        changes = self._read(self._plan.changes, before).where(self._plan.where)
        if not self._plan.over:
            return changes
        return changes.unionByName(self._read(self._plan.over, before).where(self._plan.where_over))

    def _base(self) -> DataFrame:
        return self._read(self._plan.base).where("_op IS NULL OR _op NOT IN ('d', 't')")

    def _inserts(self) -> DataFrame:
        events = self._events()
        if events.where("_op IN ('u', 'd')").limit(1).count():
            raise no_key(self._plan.table)
        return events.unionByName(self._base())

    def _moved(self) -> Column:
        """The same condition as `Query.moved`."""
        from pyspark.sql import functions as F

        pairs = [(F.col(before_alias(n)), F.col(alias(n))) for n in self._plan.key]
        known = reduce(lambda a, b: a | b, (old.isNotNull() for old, _ in pairs))
        other = reduce(lambda a, b: a | b, (~old.eqNullSafe(new) for old, new in pairs))
        return (F.col("_op") == "u") & known & other

    def _counted(self) -> DataFrame:
        """All changes in the plan. Tangled ones are replaced by their results, with columns `MAYBE` and `FROM`."""
        from pyspark.sql import functions as F

        events, plan = self._events(self._plan.key), self._plan
        plain = events.withColumns({MAYBE: F.lit(False), FROM: F.lit(None).cast("long")})
        suspects = find_suspects(plan.changes)
        if not suspects:
            return plain
        changes = self._changes_of(suspects)
        if not may_be_tangled(changes, self._moved()):
            return plain
        places = tangled_places(changes, plan.key, self._moved()).localCheckpoint()
        every = range(len(plan.union.columns))
        rows = files_frame(self._session, self._store, plan.union, plan.changes, list(CDC_TYPES), every, every)
        rows = rows.where(plan.where).join(places, ["_gsn", "_seq"], "left_semi")
        tangles = SparkTangles(rows, plan.key, [column.name for column in plan.union.columns])
        plain = plain.join(places, ["_gsn", "_seq"], "left_anti").select(*plain.columns)
        made = tangles.made()
        asks = tangles.asks() if self._fills else None
        if asks is not None and asks.limit(1).count():
            found = plain.unionByName(made.select(*plain.columns))
            made = tangles.made(answers_of(asks, self._places(found), self._base(), plan.key))
        self._has_maybe = bool(made.where(MAYBE).limit(1).count())
        return plain.unionByName(made.select(*plain.columns)).persist()

    def _changes_of(self, suspects: Suspects) -> DataFrame:
        from pyspark.sql import functions as F

        found = self._read(suspects.whole, self._plan.key)
        if suspects.partly:
            partly = self._read(suspects.partly, self._plan.key)
            found = found.unionByName(partly.where(F.col("_gsn").isin(*suspects.gsns)))
        return found.where(self._plan.where)

    def _leaves(self) -> Column:
        from pyspark.sql import functions as F

        return self._moved() & F.col(FROM).isNull()

    def _places(self, events: DataFrame) -> DataFrame:
        """Every place of every key, without rows that are `MAYBE`, and whether the key has a row there."""
        from pyspark.sql import functions as F

        place = F.struct("_gsn", "_seq").alias("place")
        own = events.where(~F.col(MAYBE)).select(*self._keys, place, (F.col("_op") != "d").alias("is_there"))
        old = (F.col(before_alias(n)).alias(alias(n)) for n in self._plan.key)
        return own.union(events.where(self._leaves()).select(*old, place, F.lit(False).alias("is_there")))

    def _latest(self) -> DataFrame:
        from pyspark.sql import functions as F

        events = self._counted()
        row, place = F.struct(*self._payload), F.struct("_gsn", "_seq")
        real = events.where(~F.col(MAYBE)).select(*self._keys, place.alias("place"), row.alias("row"))
        # the old key of a moved row has no row from there on
        nothing = F.lit(None).cast(real.schema["row"].dataType)
        old = (F.col(before_alias(n)).alias(alias(n)) for n in self._plan.key)
        ended = events.where(self._leaves()).select(*old, place.alias("place"), nothing.alias("row"))
        of_key = real.union(ended).groupBy(*self._keys)
        last = of_key.agg(F.max_by("row", "place").alias("row"), F.max("place").alias("place"))
        touched = last.select(*(F.col(key).alias(f"t_{key}") for key in self._keys))
        if self._has_maybe:
            maybe = events.where(MAYBE).select(
                *(F.col(k).alias(f"m_{k}") for k in self._keys), place.alias("p"), row.alias("r")
            )
            there = maybe.groupBy(*(f"m_{key}" for key in self._keys))
            winners = self._with_maybe(last, there.agg(F.max_by("r", "p").alias("m_row"), F.max("p").alias("m_place")))
            touched = touched.union(maybe.select(*(f"m_{key}" for key in self._keys)))
        else:
            winners = last.where("row IS NOT NULL AND row._op <> 'd'").select("row.*")
        if self._fills:
            winners = self._filled(winners, events)
        if not self._plan.base:
            return winners
        base = self._base()
        return winners.unionByName(base.join(touched, same_key(touched, base, self._plan.key, "t_"), "left_anti"))

    def _with_maybe(self, last: DataFrame, there: DataFrame) -> DataFrame:
        """`there`: the last `MAYBE` row of each key, which exists if the key had a row before."""
        from pyspark.sql import functions as F

        key = self._plan.key
        sure = last.where("row IS NOT NULL AND row._op <> 'd'").join(there, same_key(there, last, key, "m_"), "left")
        chosen = F.when(F.col("m_place") > F.col("place"), F.col("m_row")).otherwise(F.col("row"))
        winners = sure.select(chosen.alias("row")).select("row.*")
        alone, base = there.join(last, same_key(there, last, key, "m_"), "left_anti"), self._base()
        return winners.unionByName(alone.join(base, same_key(alone, base, key, "m_"), "left_semi").select("m_row.*"))

    def _filled(self, winners: DataFrame, events: DataFrame) -> DataFrame:
        """Fills missing columns, as `fill.py`."""
        from pyspark.sql import functions as F

        winners = winners.persist()
        lacked = {row[0] for row in winners.select(F.explode(UNCHANGED)).distinct().collect()}
        for number in self._columns:
            if self._plan.union.columns[number].name in lacked and number not in self._plan.key:
                winners = self._fill(winners, events, number)
        return winners

    def _fill(self, winners: DataFrame, events: DataFrame, number: int) -> DataFrame:
        from pyspark.sql import functions as F

        value, keys = alias(number), self._keys
        named = F.lit(self._plan.union.columns[number].name)
        left_out = F.coalesce(F.array_contains(UNCHANGED, named), F.lit(False))
        known = ~((F.col("_op") == "u") & left_out)
        place = F.struct("_gsn", "_seq")
        stops = events.where(known | self._moved() | F.col(FROM).isNotNull()).select(
            *(F.col(key).alias(f"s_{key}") for key in keys),
            place.alias("s_place"),
            F.struct(
                known.alias("known"),
                F.struct("_gsn", F.coalesce(FROM, "_seq").alias("_seq")).alias("came_from"),
                F.col(value).alias("v"),
                *(F.col(before_alias(n)).alias(f"o_{alias(n)}") for n in self._plan.key),
            ).alias("stop"),
        )
        bases = self._base().select(*(F.col(key).alias(f"b_{key}") for key in keys), F.col(value).alias("b_v"))
        todo = winners.where(left_out).select(
            place.alias("target"), place.alias("place"), F.lit(True).alias("own"), *keys
        )
        found = todo.select(
            "target", F.lit(None).cast(spark_type(self._plan.union.columns[number].field.type)).alias("v")
        )
        found = found.limit(0)
        while todo.limit(1).count():
            at = todo["own"] & (stops["s_place"] == todo["place"]) | (stops["s_place"] < todo["place"])
            same = reduce(lambda a, b: a & b, (stops[f"s_{key}"].eqNullSafe(todo[key]) for key in keys))
            hops = (
                todo.join(stops, same & at, "left")
                .groupBy("target", *keys)
                .agg(F.max_by("stop", "s_place").alias("stop"))
                .persist()
            )
            found = found.union(hops.where("stop.known").select("target", "stop.v"))
            of_base = reduce(lambda a, b: a & b, (bases[f"b_{key}"].eqNullSafe(hops[key]) for key in keys))
            found = found.union(hops.where("stop IS NULL").join(bases, of_base).select("target", "b_v"))
            todo = hops.where("NOT stop.known").select(
                "target",
                F.col("stop.came_from").alias("place"),
                F.lit(False).alias("own"),
                *(F.col(f"stop.o_{key}").alias(key) for key in keys),
            )
        found = found.select(F.col("target").alias("f_target"), F.col("v").alias("f_v"))
        joined = winners.join(found, F.struct(winners["_gsn"], winners["_seq"]) == found["f_target"], "left")
        filled = F.when(left_out, F.col("f_v")).otherwise(F.col(value))
        return joined.withColumn(value, filled).select(*self._payload)
