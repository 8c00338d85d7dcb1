"""The API dies between an operator's word and its answer: the word counts or it does not, and can be said again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from lowwater.control.fold import ControlReader
from lowwater.runtime.failpoints import FAIL_POINTS
from tests.conftest import NewFleet
from tests.support.api import Api
from tests.support.harness import Fleet

POINTS = ["control.before_write", "control.written"]


def _actions(fleet: Fleet) -> list[tuple[str, str, Any]]:
    source, group = fleet.sources[0], fleet.group
    spec = {"kind": "simulated_rac", "group": group, "config": {"directory": "/nowhere"}}
    skip = {"source": source, "thread": 1, "txid": "1.2.3", "reason": "known"}
    return [
        ("PUT", f"/v1/sources/{source}/pause", {"reason": "one"}),
        ("PUT", f"/v1/sources/{source}/resume", {"reason": "two"}),
        ("PUT", f"/v1/sources/{source}/stop", {"reason": "three"}),
        ("POST", f"/v1/sources/{source}/restart", {"reason": "four"}),
        ("PUT", f"/v1/sources/{source}-new/config", spec),
        ("DELETE", f"/v1/sources/{source}-new", None),
        ("POST", f"/v1/sources/{source}/threads/1/exclude", {"reason": "five"}),
        ("POST", f"/v1/sources/{source}/threads/1/include", {"reason": "six"}),
        ("PUT", f"/v1/groups/{group}/pause", {"reason": "seven"}),
        ("POST", f"/v1/groups/{group}/skips", skip),
        ("PUT", f"/v1/groups/{group}-new/config", {}),
        ("DELETE", f"/v1/groups/{group}-new", None),
    ]


def test_all_points_have_a_test() -> None:
    assert {p for p in FAIL_POINTS if p.startswith("control.")} == {*POINTS, "control.position_changed"}


def _word(fleet: Fleet, path: str) -> tuple[str, str]:
    """Whose version the action moves."""
    kind, name = ("group", path.split("/")[3]) if path.startswith("/v1/groups") else ("source", path.split("/")[3])
    return ("group", fleet.group) if "/threads/" in path else (kind, name)


@pytest.mark.parametrize("point", POINTS)
def test_an_action_counts_or_not_and_can_be_said_again(new_fleet: NewFleet, point: str) -> None:
    _kill_at(new_fleet, point, ("-1/pause", "-1-new/config"))


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_each_action_counts_or_not_and_can_be_said_again(new_fleet: NewFleet, point: str) -> None:
    _kill_at(new_fleet, point, ("",))


def _kill_at(new_fleet: NewFleet, point: str, endings: tuple[str, ...]) -> None:
    fleet = new_fleet(control={"requests_per_second": 100_000})
    api = Api(fleet.control()).wait()
    api.close()
    api.service.kill()
    actions = [action for action in _actions(fleet) if action[1].endswith(endings)]
    for method, path, body in actions:
        kind, name = _word(fleet, path)
        before = _version(fleet, kind, name)
        dying = Api(fleet.control(LOWWATER_FAIL_AT=point)).wait()
        with pytest.raises(httpx.TransportError):
            dying.client.request(method, path, json=body)
        dying.close()
        assert dying.service.wait(20) == -9
        after = _version(fleet, kind, name)
        assert after - before == (1 if point == "control.written" else 0), (method, path)
        again = Api(fleet.control()).wait()
        status = again.client.request(method, path, json=body).status_code
        # what is removed cannot be removed again: its caller learns that it was done
        wanted = {404} if method == "DELETE" and point == "control.written" else {200, 201, 202, 204}
        assert status in wanted, (method, path, status)
        again.close()
        again.service.kill()


def _version(fleet: Fleet, kind: str, name: str) -> int:
    reader = ControlReader(fleet.settings.kafka, fleet.codec)
    try:
        return int(reader.fold.get(kind, name).version)
    finally:
        reader.close()


def test_a_position_that_was_changed_stays_changed_and_the_change_can_be_repeated(new_fleet: NewFleet) -> None:
    fleet = new_fleet(control={"requests_per_second": 100_000})
    fleet.cluster()
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    source = fleet.sources[0]
    dying = Api(fleet.control(LOWWATER_FAIL_AT="control.position_changed")).wait()
    dying.put(f"/v1/sources/{source}/stop")
    assert extractor.wait(20) == 0
    with pytest.raises(httpx.TransportError):
        dying.client.delete(f"/v1/sources/{source}/positions")
    dying.close()
    assert fleet.position().threads == ()
    again = Api(fleet.control()).wait()
    assert again.call("DELETE", f"/v1/sources/{source}/positions", 200)["dry_run"] is False
    assert again.put(f"/v1/sources/{source}/resume")["wanted"] == "running"
    again.close()
