"""A table whose state is not known is refused, with since when, why, and from where on it can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.lake_maker import LakeMaker
from tests.unit.lake.test_reader import insert, schema
from tests.unit.lake.test_reader_cli import answer, run

from lowwater.codec.table import INT64
from lowwater.errors import StaleTableError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.reader import Lake
from lowwater.lake.store.local import LocalDirectory
from lowwater.runtime.config import LakeConfig
from lowwater_spark.maintenance.retention import retain
from lowwater_spark.maintenance.state_policy import StatePolicy

NAME = "pg.bank.accounts"


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return LakeMaker(LocalDirectory(tmp_path / "lake"))


def _stale_then_copied(maker: LakeMaker) -> tuple[int, int]:
    table = maker.version(schema(NAME, {"id": INT64}))
    other = maker.version(schema("pg.bank.other", {"id": INT64}))
    maker.land([insert(table, id=1), insert(other, id=1)])
    stale = maker.stale(table, "a partition was attached")
    maker.land([insert(table, id=2), insert(other, id=2)])
    maker.copy(table, "copy1", [[{"id": 1}, {"id": 2}, {"id": 7}]], f"{maker.gsn}.*")
    return stale, maker.copied(table, "copy1", f"{maker.gsn}.*")


def test_state_between_stale_and_copied_is_refused_with_the_gsn_to_ask_for(maker: LakeMaker) -> None:
    stale, copied = _stale_then_copied(maker)
    lake = Lake(maker.store)
    assert len(lake.state(NAME, stale - 1).rows()) == 1
    for gsn in range(stale, copied):
        with pytest.raises(StaleTableError, match=f"stale since gsn {stale}: a partition was attached") as refused:
            lake.state(NAME, gsn)
        assert f"from gsn {copied} on" in (refused.value.hint or "")
    assert sorted(row["id"] for row in lake.state(NAME).rows()) == [1, 2, 7]
    assert sorted(row["id"] for row in lake.state(NAME, copied - 1, allow_stale=True).rows()) == [1, 2]
    assert len(lake.state("other", stale).rows()) == 1
    assert len(lake.changes(NAME, 0, stale).arrow()) == 1


def test_stale_is_kept_by_a_checkpoint(maker: LakeMaker) -> None:
    table = maker.version(schema(NAME, {"id": INT64}))
    maker.land([insert(table, id=1)])
    stale = maker.stale(table, "why")
    Chain.open(maker.store).write_checkpoint()
    with pytest.raises(StaleTableError, match=f"since gsn {stale}") as refused:
        Lake(maker.store).state(NAME)
    assert "when a copy of it has landed" in (refused.value.hint or "")


def test_a_second_stale_names_the_first_and_a_copy_in_between_ends_it(maker: LakeMaker) -> None:
    _, copied = _stale_then_copied(maker)
    again = maker.stale(1, "a rename")
    maker.stale(1, "another one")
    lake = Lake(maker.store)
    assert len(lake.state(NAME, copied).rows()) == 3
    with pytest.raises(StaleTableError, match=f"since gsn {again}: a rename"):
        lake.state(NAME)


def test_a_stale_table_is_not_folded(maker: LakeMaker) -> None:
    table = maker.version(schema(NAME, {"id": INT64}))
    maker.land([insert(table, id=1)])
    maker.stale(table, "why")
    chain = Chain.open(maker.store)
    config = LakeConfig(uri=maker.store.uri, grace_hours=0)
    retain(None, chain, config, chain.head.gsn, 10**18, StatePolicy(rows_min=1), overdue_gsn=chain.head.gsn)
    assert chain.head.history_from == 0


def test_command_line_names_stale_tables_and_refuses_their_rows(maker: LakeMaker) -> None:
    table = maker.version(schema(NAME, {"id": INT64}))
    maker.land([insert(table, id=1)])
    stale = maker.stale(table, "why")
    uri = maker.store.uri
    assert answer("tables", "--lake", uri)[0]["stale"] == {"gsn": stale, "reason": "why"}
    assert f"since gsn {stale}: why" in run("tables", "--lake", uri)
    assert answer("show", NAME, "--lake", uri)["stale"] == {"gsn": stale, "reason": "why"}
    assert answer("log", "--lake", uri)[0]["stale"][0]["reason"] == "why"
    for asked in (("state", NAME), ("sql", "SELECT count(*) AS n FROM accounts")):
        with pytest.raises(StaleTableError):
            run(*asked, "--lake", uri)
    found = json.loads(run("sql", "SELECT count(*) AS n FROM accounts", "--allow-stale", "--lake", uri, "--json"))
    assert found["rows"] == [{"n": 1}]
    assert answer("state", NAME, "--allow-stale", "--lake", uri)["rows"] == [{"id": 1}]
