"""`lowwater lake`: what it prints, and the JSON that scripts rely on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction
from tests.unit.lake.test_reader import insert, schema
from typer.testing import CliRunner

from lowwater.codec.table import BYTES, INT64, TIMESTAMPTZ, decimal
from lowwater.errors import ConfigError, LakeError
from lowwater.lake.chain.manifest import SkippedTransaction
from lowwater.lake.store.local import LocalDirectory
from lowwater_fleet.cli.main import app

NAME = "pg.bank.accounts"


@pytest.fixture
def lake(tmp_path: Path) -> str:
    maker = LakeMaker(LocalDirectory(tmp_path / "lake"))
    columns = {"id": INT64, "cents": decimal(20, 2), "raw": BYTES, "at": TIMESTAMPTZ}
    table = maker.version(schema(NAME, columns))
    maker.land([insert(table, id=n, cents=n, raw=b"\x01", at=1_000_000 * n) for n in range(3)])
    skipped = SkippedTransaction(gsn=4, source="pg", thread=1, txid="77", reason="poison")
    maker.land([], rowless=1, skipped=[skipped])
    maker.land([MadeTransaction([Made(table, "d", {"id": 0})])])
    return maker.store.uri


def run(*arguments: str, code: int = 0) -> str:
    found = CliRunner().invoke(app, ["lake", *arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    assert found.exit_code == code, found.output
    return found.stdout


def answer(*arguments: str, code: int = 0) -> Any:
    return json.loads(run(*arguments, "--json", code=code))


def test_tables_and_log(lake: str) -> None:
    [table] = answer("tables", "--lake", lake)
    assert (table["table"], table["version"], table["rows"], table["files"], table["gsn"]) == (NAME, 1, 4, 2, 5)
    log = answer("log", "--lake", lake)
    assert [(row["n"], row["kind"], row["from_gsn"], row["gsn"], row["rows"]) for row in log] == [
        (3, "land", 4, 5, 1),
        (2, "land", 3, 4, 0),
        (1, "land", 0, 3, 3),
    ]
    assert log[1]["skipped"] == [{"gsn": 4, "source": "pg", "thread": 1, "txid": "77", "reason": "poison"}]
    assert [row["n"] for row in answer("log", "--lake", lake, "--from", "2", "--limit", "1")] == [2]
    assert "skipped: gsn 4, pg/1/77: poison" in run("log", "--lake", lake)
    assert NAME in run("tables", "--lake", lake)


def test_show_and_changes(lake: str) -> None:
    shown = answer("show", "accounts", "--lake", lake)
    assert shown["key"] == ["id"]
    assert shown["columns"][1] == {"name": "cents", "type": "decimal128(20, 2)"}
    assert [file["rows"] for file in shown["files"]] == [3, 1]
    assert "decimal128(20, 2)" in run("show", "accounts", "--lake", lake)
    changes = answer("show", "accounts", "--changes", "--after", "2", "--lake", lake)
    assert [(row["_gsn"], row["_op"], row["id"]) for row in changes["rows"]] == [(3, "c", 2), (5, "d", 0)]
    assert len(answer("show", "accounts", "--changes", "--limit", "1", "--lake", lake)["rows"]) == 1
    assert "_op" in run("show", "accounts", "--changes", "--lake", lake)


def test_state_and_sql(lake: str) -> None:
    state = answer("state", "accounts", "--as-of", "3", "--where", "id > 0", "--lake", lake)
    assert state["gsn"] == 3
    first = min(state["rows"], key=lambda row: row["id"])
    assert first == {"id": 1, "cents": "1.00", "raw": "01", "at": "1970-01-01T00:00:01Z"}
    assert "1.00" in run("state", "accounts", "--lake", lake)
    query = f'SELECT (SELECT count(*) FROM "{NAME}") AS rows, (SELECT count(*) FROM Accounts_changes) AS changes'
    assert answer("sql", query, "--lake", lake) == {"gsn": 5, "rows": [{"rows": 2, "changes": 4}]}
    assert answer("sql", query, "--as-of", "2", "--lake", lake)["rows"] == [{"rows": 2, "changes": 2}]
    sorted_rows = answer("sql", "SELECT id FROM accounts ORDER BY id DESC", "--lake", lake)["rows"]
    assert sorted_rows == [{"id": 2}, {"id": 1}]


@pytest.mark.parametrize("query", ["COPY accounts TO '/tmp/x.csv'", "SELECT 1; SELECT 2", "CREATE TABLE x (a INT)"])
def test_sql_only_reads(lake: str, query: str) -> None:
    with pytest.raises(LakeError, match="only one SELECT"):
        run("sql", query, "--lake", lake)


def test_sql_that_is_wrong_is_said_in_one_line_with_a_hint(lake: str) -> None:
    with pytest.raises(LakeError, match="nothing_here") as refused:
        run("sql", "SELECT * FROM nothing_here", "--lake", lake)
    assert "lake tables" in (refused.value.hint or "")
    with pytest.raises(LakeError, match="nope"):
        run("state", "accounts", "--where", "nope = 1", "--lake", lake)


def test_verify_ends_with_one_where_something_is_damaged(lake: str) -> None:
    assert answer("verify", "--lake", lake) == {"damaged": False, "found": []}
    path = next(Path(lake).glob("stream/*/*.parquet"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    found = answer("verify", "--lake", lake, code=1)
    assert found["damaged"]
    assert path.name in found["found"][0]["path"]
    assert not answer("verify", "--quick", "--lake", lake)["damaged"]


def test_the_config_names_the_lake(lake: str, tmp_path: Path) -> None:
    config = tmp_path / "fleet.yaml"
    group = {"sources": ["pg"], "lake": {"uri": lake}}
    sources = {"pg": {"kind": "simulated_rac"}}
    config.write_text(json.dumps({"sources": sources, "groups": {"one": group}}))
    assert answer("tables", "--config", str(config))[0]["table"] == NAME
    config.write_text(json.dumps({"sources": sources, "groups": {"one": {"sources": ["pg"]}}}))
    with pytest.raises(ConfigError, match="has no lake"):
        run("tables", "--config", str(config))
