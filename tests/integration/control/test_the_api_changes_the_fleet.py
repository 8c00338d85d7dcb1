"""What operators do: add, change and remove; pause, resume, stop, restart; exclude; copy; positions; each refused
with the reason where it cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.api import Api
from tests.support.harness import Fleet, Workload, wait_until

from lowwater.control.fold import ControlReader


def _spec(fleet: Fleet, **more: Any) -> dict[str, Any]:
    config = {"directory": str(fleet.directory / "another")}
    return {"kind": "simulated_rac", "group": fleet.group, "config": config, **more}


# -- adding and changing ---------------------------------------------------------------------------------


def test_a_source_is_added_read_back_changed_and_removed(api: Api, fleet: Fleet) -> None:
    name = f"{fleet.sources[0]}-added"
    answer = api.client.post("/v1/sources", json={"name": name, "config": _spec(fleet)})
    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/sources/{name}")
    assert api.get(f"/v1/sources/{name}/config") == _spec(fleet)
    assert api.get(f"/v1/sources/{name}/status")["state"] == "unreachable", "nobody runs it here"
    assert name in api.get(f"/v1/groups/{fleet.group}/status")["sources"]
    assert "already" in api.problem("POST", "/v1/sources", 409, {"name": name, "config": _spec(fleet)})["detail"]
    version = api.put(f"/v1/sources/{name}/config", _spec(fleet), status=200)["version"]
    assert version == 1, "the same again changes nothing"
    changed = _spec(fleet, mark_seconds=2.0)
    assert api.put(f"/v1/sources/{name}/config", changed, status=200)["version"] == 2
    assert api.get(f"/v1/sources/{name}/config") == changed
    api.delete(f"/v1/sources/{name}?reason=a+test")
    assert name not in api.get("/v1/sources")
    api.problem("GET", f"/v1/sources/{name}/config", 404)
    assert api.put(f"/v1/sources/{name}/config", _spec(fleet), status=201)["wanted"] == "running"
    api.delete(f"/v1/sources/{name}")


def test_a_group_is_made_changed_and_removed_only_when_it_is_empty(api: Api, fleet: Fleet) -> None:
    name = f"{fleet.group}-made"
    api.put(f"/v1/groups/{name}/config", {"retention_hours": 24}, status=201)
    assert api.get(f"/v1/groups/{name}/config") == {"retention_hours": 24}
    assert api.get(f"/v1/groups/{name}/status")["state"] == "empty"
    source = f"{name}-source"
    api.post("/v1/sources", {"name": source, "config": _spec(fleet, group=name)}, status=201)
    assert source in api.problem("DELETE", f"/v1/groups/{name}", 409)["detail"]
    api.delete(f"/v1/sources/{source}")
    api.delete(f"/v1/groups/{name}")
    api.problem("GET", f"/v1/groups/{name}/status", 404)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kind": "oracel"}, "config.kind"),
        ({"group": "nowhere"}, "config.group"),
        ({"config": {}}, "config.config.directory"),
        ({"config": {"directory": "x", "raed_bytes": 1}}, "config.config.raed_bytes"),
        ({"kind": "postgres", "config": {"password": "hunter2"}}, "config.config.password"),
        ({"kind": "postgres", "config": {"host": "postgres://me:hunter2@db/x"}}, "config.config.host"),
        ({"partitions": 0}, "config.partitions"),
        ({"bacth": {}}, "config.bacth"),
    ],
)
def test_a_wrong_config_is_refused_with_its_field(api: Api, fleet: Fleet, change: dict[str, Any], field: str) -> None:
    name = f"{fleet.sources[0]}-wrong"
    found = api.problem("POST", "/v1/sources", 422, {"name": name, "config": _spec(fleet, **change)})
    assert field in [one["field"] for one in found["errors"]], found
    assert "hunter2" not in str(found)
    assert name not in api.get("/v1/sources")


def test_what_is_frozen_cannot_be_changed(api: Api, fleet: Fleet, source: str) -> None:
    spec = api.get(f"/v1/sources/{source}/config")
    found = api.problem("PUT", f"/v1/sources/{source}/config", 422, {**spec, "partitions": 9})
    assert found["errors"][0]["field"] == "partitions"
    assert found["hint"]


@pytest.mark.parametrize("name", ["Bank", "a.b", "-x", "x" * 64])
def test_a_wrong_name_is_refused(api: Api, fleet: Fleet, name: str) -> None:
    found = api.problem("POST", "/v1/sources", 422, {"name": name, "config": _spec(fleet)})
    assert [one["field"] for one in found["errors"]] == ["name"]
    api.problem("PUT", f"/v1/groups/{name}/config", 422, {})


def test_what_is_not_there_is_404_with_what_is(api: Api, source: str) -> None:
    for method, path in [
        ("GET", "/v1/sources/nobody"), ("GET", "/v1/sources/nobody/status"), ("GET", "/v1/sources/nobody/positions"),
        ("PUT", "/v1/sources/nobody/pause"), ("POST", "/v1/sources/nobody/restart"), ("DELETE", "/v1/sources/nobody"),
        ("GET", "/v1/sources/nobody/copies"), ("GET", "/v1/sources/nobody/tables"),
        ("POST", "/v1/sources/nobody/validate"),
        ("GET", "/v1/groups/nobody/status"), ("GET", "/v1/groups/nobody/landings"), ("PUT", "/v1/groups/nobody/pause"),
        ("GET", "/v1/groups/nobody/transactions"), ("GET", "/v1/groups/nobody/commands"),
        ("DELETE", "/v1/groups/nobody"),
        ("DELETE", "/v1/sources/nobody/positions"), ("GET", "/v1/groups/nobody/lake/tables"),
    ]:  # fmt: skip
        found = api.problem(method, path, 404)
        assert "nobody" in found["detail"]
        assert source in found["hint"] or "known" in found["hint"]
    assert api.problem("GET", "/v1/nothing", 404)["title"] == "unknown"
    assert api.problem("PATCH", "/v1/fleet", 405)["title"] == "method-not-allowed"


# -- running ---------------------------------------------------------------------------------------------


def test_pause_and_resume_reach_the_extractor(api: Api, fleet: Fleet, work: Workload, source: str) -> None:
    said = api.put(f"/v1/sources/{source}/pause", {"reason": "a migration"})
    assert (said["wanted"], said["reason"]) == ("paused", "a migration")
    assert api.get(f"/v1/sources/{source}/status")["wanted"] == "paused", "at once, on the same replica"
    api.wait_for_source(source, "paused")
    work.run(90)
    api.put(f"/v1/sources/{source}/resume")
    api.wait_for_source(source, "running")
    fleet.wait_for_all()
    fleet.assert_good()


def test_restart_begins_a_new_session_of_source_and_group(api: Api, fleet: Fleet, source: str) -> None:
    epoch = api.get(f"/v1/sources/{source}/status")["epoch"]
    api.post(f"/v1/sources/{source}/restart", {"reason": "to be sure"})
    api.wait_for(f"/v1/sources/{source}/status", "the next epoch", lambda s: (s["epoch"] or 0) > epoch)
    api.post(f"/v1/groups/{fleet.group}/restart")
    api.wait_for(f"/v1/groups/{fleet.group}/status", "the merger", lambda g: g["state"] == "running")
    fleet.wait_for_all()


def test_a_group_is_paused_retried_and_resumed(api: Api, fleet: Fleet) -> None:
    path = f"/v1/groups/{fleet.group}"
    api.put(f"{path}/pause", {"reason": "a look"})
    api.wait_for(f"{path}/status", "the pause", lambda g: g["state"] == "paused")
    api.put(f"{path}/resume")
    api.post(f"{path}/retry")
    api.wait_for(f"{path}/status", "it runs", lambda g: g["state"] == "running")


def test_a_thread_is_excluded_and_included_with_a_reason_that_is_recorded(api: Api, fleet: Fleet, source: str) -> None:
    path = f"/v1/sources/{source}/threads/2"
    assert api.problem("POST", f"{path}/exclude", 422, {})["errors"][0]["field"] == "reason"
    assert api.problem("POST", f"/v1/sources/{source}/threads/7/exclude", 404, {"reason": "x"})["hint"] == "known: 1, 2"
    api.post(f"{path}/exclude", {"reason": "its node is gone"})
    status = api.get(f"/v1/sources/{source}/status")
    assert [t["is_excluded"] for t in status["threads"]] == [False, True]
    assert api.get(f"/v1/groups/{fleet.group}/status")["exclusions"][0]["reason"] == "its node is gone"
    wait_until(
        "the merger's word", lambda: api.get(f"/v1/groups/{fleet.group}/commands")[0]["command"] == "exclude", 20
    )
    api.post(f"{path}/include", {"reason": "it is back"})
    wait_until(
        "the merger's word", lambda: api.get(f"/v1/groups/{fleet.group}/commands")[0]["command"] == "include", 20
    )
    assert api.get(f"/v1/groups/{fleet.group}/words")[1]["reason"] == "its node is gone"


def test_a_skip_is_recorded_once(api: Api, fleet: Fleet, source: str) -> None:
    word = {"source": source, "thread": 1, "txid": "1.2.3", "reason": "known to be harmless"}
    api.post(f"/v1/groups/{fleet.group}/skips", word)
    api.post(f"/v1/groups/{fleet.group}/skips", word)
    reader = ControlReader(fleet.settings.kafka, fleet.codec)
    assert len(reader.fold.get("group", fleet.group).control.skips) == 1
    reader.close()
    api.problem("POST", f"/v1/groups/{fleet.group}/skips", 404, {**word, "source": "nobody"})


def test_a_copy_is_asked_for_and_cancelled(api: Api, source: str) -> None:
    api.post(f"/v1/sources/{source}/copies", {"table": "BANK.NOBODY", "reason": "a test"})
    (copy,) = api.get(f"/v1/sources/{source}/copies")
    assert (copy["table"], copy["state"], copy["reason"]) == ("BANK.NOBODY", "requested", "a test")
    api.call("DELETE", f"/v1/sources/{source}/copies/BANK.NOBODY", 202)
    assert api.problem("DELETE", f"/v1/sources/{source}/copies/BANK.OTHER", 404)["hint"]
    # the simulation has no copies: its extractor says so, and goes on after the next word
    api.put(f"/v1/sources/{source}/resume")
    api.wait_for_source(source, "running")


# -- positions -------------------------------------------------------------------------------------------


def test_positions_change_only_of_a_stopped_source_and_a_dry_run_says_what_is_lost(
    api: Api, fleet: Fleet, work: Workload, source: str
) -> None:
    path = f"/v1/sources/{source}/positions"
    before = api.get(path)
    places = [{name: t[name] for name in ("thread", "resume", "mark")} for t in before["threads"]]
    assert "not stopped" in api.problem("PATCH", path, 409, {"threads": places})["detail"]
    assert "not stopped" in api.problem("DELETE", path, 409)["detail"]
    work.run(120)
    fleet.wait_for_all()
    api.put(f"/v1/sources/{source}/stop", {"reason": "a look at its position"})
    api.wait_for_source(source, "stopped")
    dry = api.call("PATCH", f"{path}?dry_run=true", 200, {"threads": places})
    assert all("not published again" in effect for effect in dry["effects"])
    ahead = [{**places[0], "mark": "99999999.*"}]
    assert "LOST" in api.call("PATCH", f"{path}?dry_run=true", 200, {"threads": ahead})["effects"][0]
    wrong = [{**places[0], "thread": 9}]
    assert api.problem("PATCH", path, 422, {"threads": wrong})["errors"][0]["field"] == "threads.0.thread"
    assert "LOST" in api.call("DELETE", f"{path}?dry_run=true", 200)["effects"][0]
    done = api.call("PATCH", path, 200, {"threads": places})
    assert "continues at" in done["done"]
    assert [t["resume"] for t in api.get(path)["threads"]] == [t["resume"] for t in before["threads"]]
    api.put(f"/v1/sources/{source}/resume")
    fleet.extractor()
    work.run(140)
    fleet.wait_for_all()
    fleet.assert_good()
    api.wait_for_source(source, "running")
