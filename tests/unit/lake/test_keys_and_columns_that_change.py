"""A key that changes, and a column that is dropped and added again: refused until a copy lies in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.test_reader import insert, schema

from lowwater.codec.table import INT64, STRING, Type
from lowwater.errors import LakeError
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory

NAME = "s.n.t"
COLUMNS: dict[str, Type] = {"id": INT64, "day": INT64, "v": STRING}


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return LakeMaker(LocalDirectory(tmp_path))


@pytest.mark.parametrize("new", [("id", "day"), ("day",), ()])
def test_state_over_two_keys_is_refused_until_a_copy_lies_between(maker: LakeMaker, new: tuple[str, ...]) -> None:
    one = maker.version(schema(NAME, COLUMNS))
    maker.land([insert(one, id=1, day=1, v="a"), insert(one, id=2, day=2, v="b")])
    two = maker.version(schema(NAME, COLUMNS, new, 2))
    maker.land([insert(two, id=1, day=2, v="c")])
    lake = Lake(maker.store)
    assert len(lake.state("t", 2).rows()) == 2
    with pytest.raises(LakeError, match="from gsn 3 on") as refused:
        lake.state("t")
    assert "copy the table" in (refused.value.hint or "")
    low = f"{maker.gsn}.*"
    maker.copy(two, "copy1", [[{"id": 1, "day": 1, "v": "a"}, {"id": 2, "day": 2, "v": "b"}]], low)
    copied = maker.copied(two, "copy1", low)
    maker.land([insert(two, id=7, day=7, v="d")])
    lake.refresh()
    assert len(lake.state("t").rows()) == 3
    with pytest.raises(LakeError, match="from gsn 3 on") as refused:
        lake.state("t", 3)
    assert f"from gsn {copied} on" in (refused.value.hint or "")


def test_the_same_key_in_another_order_is_the_same_key(maker: LakeMaker) -> None:
    one = maker.version(schema(NAME, COLUMNS, ("id", "day")))
    maker.land([insert(one, id=1, day=1, v="a")])
    two = maker.version(schema(NAME, COLUMNS, ("day", "id"), 2))
    maker.land([MadeTransaction([Made(two, "u", {"id": 1, "day": 1, "v": "b"})])])
    assert [row["v"] for row in Lake(maker.store).state("t").rows()] == ["b"]


def test_a_key_that_changed_before_a_truncate_does_not_matter(maker: LakeMaker) -> None:
    one = maker.version(schema(NAME, COLUMNS))
    maker.land([insert(one, id=1, day=1, v="a")])
    two = maker.version(schema(NAME, COLUMNS, ("id", "day"), 2))
    maker.land([MadeTransaction([Made(one, "t"), Made(two, "c", {"id": 1, "day": 2, "v": "b"})])])
    assert [row["v"] for row in Lake(maker.store).state("t").rows()] == ["b"]


@pytest.mark.parametrize("is_same_version", [True, False])
def test_old_values_of_a_column_that_was_dropped_and_added_again_never_show(
    maker: LakeMaker, is_same_version: bool
) -> None:
    one = maker.version(schema(NAME, COLUMNS))
    maker.land([insert(one, id=1, day=1, v="old"), insert(one, id=2, day=2, v="old")])
    two = maker.version(schema(NAME, {"id": INT64, "day": INT64}, version=2))
    maker.land([MadeTransaction([Made(two, "u", {"id": 2, "day": 3})])])
    # the same set of columns has the same version, also when it comes back
    three = one if is_same_version else maker.version(schema(NAME, {**COLUMNS, "w": STRING}, version=3))
    lake = Lake(maker.store)
    assert {row["id"]: row["v"] for row in lake.state("t").rows()} == {1: "old", 2: None}
    maker.land([insert(three, id=3, day=3, v="new")])
    lake.refresh()
    with pytest.raises(LakeError, match="column 'v' did not exist at gsn 3 and was added again"):
        lake.state("t")
    low = f"{maker.gsn}.*"
    maker.copy(three, "copy1", [[{"id": n, "day": n, "v": "new" if n == 3 else None} for n in (1, 2, 3)]], low)
    maker.copied(three, "copy1", low)
    lake.refresh()
    assert {row["id"]: row["v"] for row in lake.state("t").rows()} == {1: None, 2: None, 3: "new"}


def test_versions_that_meet_in_one_landing_are_told_apart_by_their_rows(maker: LakeMaker) -> None:
    """A file goes from the first to the last of its rows: what lies between may be another version's."""
    one = maker.version(schema(NAME, COLUMNS))
    two = maker.version(schema(NAME, {"id": INT64, "day": INT64}, version=2))
    maker.land([insert(one, id=1, day=1, v="a"), insert(two, id=2, day=2), insert(one, id=3, day=3, v="c")])
    lake = Lake(maker.store)
    assert len(lake.state("t", 2).rows()) == 2
    with pytest.raises(LakeError, match="was added again"):
        lake.state("t", 3)
