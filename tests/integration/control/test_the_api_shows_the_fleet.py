"""What can be read: sources, groups, positions, transactions, the lake, live events, the API's own description."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.api import Api
from tests.support.controlled import LANDINGS
from tests.support.harness import Fleet, Workload


def test_sources_are_listed_as_connect_does(api: Api, source: str) -> None:
    assert source in api.get("/v1/sources")
    found = api.get("/v1/sources?expand=status&expand=config")[source]
    assert found["config"]["kind"] == "simulated_rac"
    assert found["status"]["state"] == "running"
    assert api.get("/v1/sources?expand=status,config")[source]["config"] == found["config"]


def test_a_source_has_one_task_for_each_thread(api: Api, fleet: Fleet, source: str) -> None:
    path = f"/v1/sources/{source}/status"
    status = api.wait_for(path, "both threads", lambda s: len(s["threads"]) == 2 and s["transactions"] >= 40)
    assert (status["kind"], status["group"], status["wanted"]) == ("simulated_rac", fleet.group, "running")
    assert [t["thread"] for t in status["threads"]] == [1, 2]
    assert all(t["mark"].endswith(".*") and t["merger_mark"] for t in status["threads"])
    assert api.get(f"/v1/sources/{source}")["status"]["name"] == source


def test_a_group_tells_its_gsn_its_watermarks_and_what_waits(api: Api, fleet: Fleet, source: str) -> None:
    path = f"/v1/groups/{fleet.group}/status"
    status = api.wait_for(path, "the last gsn", lambda g: g["gsn"] == len(fleet.histories()[source]))
    assert status["sources"] == [source]
    assert (status["waiting"], status["holder"]) == (0, None)
    assert set(status["watermarks"]) == {source}
    assert status["landing"]["state"] == "unreachable", "nobody lands here"
    assert fleet.group in api.get("/v1/groups")
    assert "lake" in api.get(f"/v1/groups/{fleet.group}/config")


def test_positions_are_exact_strings(api: Api, fleet: Fleet, source: str) -> None:
    found = api.get(f"/v1/sources/{source}/positions")
    position = fleet.position()
    assert found["incarnation"] == position.incarnation
    assert [t["thread"] for t in found["threads"]] == [1, 2]
    assert [base64.b64decode(t["resume"]) for t in found["threads"]] != [b"", b""]


def test_the_last_transactions_come_newest_first_and_by_pages(api: Api, fleet: Fleet, source: str) -> None:
    committed = len(fleet.histories()[source])
    heads = api.get(f"/v1/groups/{fleet.group}/transactions?limit=10")
    assert [h["gsn"] for h in heads] == list(range(committed, committed - 10, -1))
    assert {h["source"] for h in heads} == {source}
    older = api.get(f"/v1/groups/{fleet.group}/transactions?limit=10&before={heads[-1]['gsn']}")
    assert [h["gsn"] for h in older] == list(range(committed - 10, committed - 20, -1))
    everything = api.get(f"/v1/groups/{fleet.group}/transactions?limit=200")
    assert len(everything) == committed
    assert api.get(f"/v1/groups/{fleet.group}/transactions?before=1") == []


def test_a_transaction_is_opened_up_by_table(api: Api, fleet: Fleet) -> None:
    ordered = fleet.ordered()
    for wanted in (ordered[0], ordered[len(ordered) // 2], ordered[-1]):
        assert wanted.commit is not None
        found = api.get(f"/v1/groups/{fleet.group}/transactions/{wanted.gsn}")
        assert (found["txid"], found["changes"]) == (wanted.commit.txid, wanted.commit.changes)
        assert len(found["rows"]) == min(200, wanted.commit.changes)
        assert sum(n for ops in found["tables"].values() for n in ops.values()) == wanted.commit.changes
        assert set(found["tables"]) <= {"BANK.ACCOUNTS", "BANK.TRANSFERS"}
    cut = api.get(f"/v1/groups/{fleet.group}/transactions/1?limit=1")
    assert (len(cut["rows"]), cut["is_cut"]) == (1, True)
    rest = api.get(f"/v1/groups/{fleet.group}/transactions/1?after_seq=1&limit=1")
    assert rest["rows"][0]["seq"] == 2
    assert api.problem("GET", f"/v1/groups/{fleet.group}/transactions/999999", 404)["hint"]


def test_what_is_committed_while_one_looks_is_seen(api: Api, fleet: Fleet, work: Workload, source: str) -> None:
    work.run(80)
    fleet.wait_for_all()
    committed = len(fleet.histories()[source])
    assert api.get(f"/v1/groups/{fleet.group}/transactions?limit=1")[0]["gsn"] == committed
    api.wait_for(f"/v1/groups/{fleet.group}/status", "the gsn", lambda g: g["gsn"] == committed)


def test_the_ledger_comes_by_pages(api: Api, fleet: Fleet) -> None:
    page = api.get(f"/v1/groups/{fleet.group}/landings?limit=2")
    assert [landing["n"] for landing in page["landings"]] == [LANDINGS, LANDINGS - 1]
    assert page["landings"][0]["tables"] == ["made.shop.people"]
    rest = api.get(f"/v1/groups/{fleet.group}/landings?before={page['next']}")
    assert [landing["n"] for landing in rest["landings"]] == list(range(LANDINGS - 2, 0, -1))
    assert rest["next"] is None
    assert api.get(f"/v1/groups/{fleet.group}/landings?before=1")["landings"] == []


@pytest.mark.parametrize("of", ["changes", "state"])
def test_lake_tables_and_their_newest_rows(api: Api, fleet: Fleet, of: str) -> None:
    (table,) = api.get(f"/v1/groups/{fleet.group}/lake/tables")
    assert (table["table"], table["rows"]) == ("made.shop.people", LANDINGS * 10)
    rows = api.get(f"/v1/groups/{fleet.group}/lake/tables/people/rows?limit=7&of={of}")
    assert len(rows["rows"]) == 7
    assert {"id", "name"} <= set(rows["columns"])
    if of == "changes":
        assert [row["_gsn"] for row in rows["rows"]] == list(range(50, 43, -1))
    assert "did you mean" in api.problem("GET", f"/v1/groups/{fleet.group}/lake/tables/peple/rows", 404)["hint"]


def test_source_types_have_the_schema_of_their_config(api: Api) -> None:
    types = {one["kind"]: one for one in api.get("/v1/source-types")}
    assert {"postgres", "simulated_rac"} <= set(types)
    assert "database" in types["postgres"]["config_schema"]["properties"]
    assert api.get("/v1/source-types/simulated_rac")["config_schema"]["required"] == ["directory"]
    assert api.problem("GET", "/v1/source-types/oracel", 404)["hint"].startswith("known: ")


def test_the_database_is_asked_for_checks_and_tables(api: Api, source: str) -> None:
    checks = api.post(f"/v1/sources/{source}/validate", status=200)
    assert checks["is_good"] is True
    tables = {t["table"]: t for t in api.get(f"/v1/sources/{source}/tables")}
    assert tables["BANK.ACCOUNTS"]["key"] == ["ID"]
    assert not tables["BANK.ACCOUNTS"]["can_copy"]
    missing = {"config": {"directory": "/nowhere"}}
    wrong = api.post("/v1/source-types/simulated_rac/validate", missing, status=200)
    assert (wrong["is_good"], wrong["checks"][0]["fix"] != "") == (False, True)
    assert api.problem("POST", "/v1/source-types/simulated_rac/tables", 424, missing)["title"] == "database"


def test_events_show_states_and_figures_live(api: Api, source: str) -> None:
    found: list[dict[str, Any]] = []
    for name, data in api.events():
        assert name == "fleet"
        found.append(data)
        if len(found) == 3:
            break
    assert found[0]["at_us"] < found[1]["at_us"] < found[2]["at_us"]
    assert found[-1]["sources"][source]["state"] == "running"
    assert api.get("/v1/fleet")["sources"][source]["state"] == "running"


def test_the_description_is_whole_and_has_examples(api: Api) -> None:
    described = api.get("/openapi.json")
    assert described["openapi"].startswith("3.")
    operations = [op for path, ops in described["paths"].items() if path.startswith("/v1") for op in ops.values()]
    assert len(operations) >= 45
    for operation in operations:
        assert "application/problem+json" in operation["responses"]["503"]["content"], operation["operationId"]
    text = str(described)
    assert "${env:BANK_PASSWORD}" in text
    assert api.get("/v1")["name"] == "lowwater"
    assert "lowwater_control_requests_total" in api.client.get("/metrics").text
    for path in ("/", "/docs", "/page/app.js"):
        assert api.client.get(path).status_code == 200
    assert "frame-ancestors 'none'" in api.client.get("/").headers["content-security-policy"]
