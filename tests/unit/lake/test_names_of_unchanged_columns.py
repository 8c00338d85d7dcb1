"""`_unchanged` names columns as the lake's files have them: one that is called `_before` is `_before_` there."""

from __future__ import annotations

import pyarrow as pa

from lowwater_spark.landing.rows import unchanged_names

LISTS = pa.list_(pa.string())


def test_a_column_with_a_name_of_ours_has_the_name_of_the_lake() -> None:
    found = unchanged_names(pa.array([["_before", "v"], [], ["_gsn_"]], LISTS))
    assert found.to_pylist() == [["_before_", "v"], None, ["_gsn__"]]


def test_other_names_are_left_alone() -> None:
    assert unchanged_names(pa.array([[], ["v", "_x"]], LISTS)).to_pylist() == [None, ["v", "_x"]]
    assert unchanged_names(pa.array([[], []], LISTS)).to_pylist() == [None, None]
