"""Who may do what; how much at once; and no secret comes back out."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from tests.conftest import NewFleet
from tests.support.api import Api
from tests.support.harness import Fleet

from lowwater_fleet.kafka.embedded import EmbeddedKafka
from lowwater_fleet.runner.ports import free_port

VIEW, OPERATE, SECRET = "look-9f2", "do-77a1", "hunter2-5c"
TOKENS: list[dict[str, Any]] = [
    {"name": "a screen", "role": "view", "token": "${env:LOWWATER_TEST_VIEW}"},
    {"name": "an operator", "role": "operate", "token": "${file:TOKEN_FILE}"},
]


@pytest.fixture(scope="module")
def guarded(kafka: EmbeddedKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    directory = tmp_path_factory.mktemp("guarded")
    token_file = directory / "token"
    token_file.write_text(OPERATE + "\n")
    tokens = [TOKENS[0], {**TOKENS[1], "token": f"${{file:{token_file}}}"}]
    source = {"config": {"directory": str(directory), "options": {"sslpassword": SECRET}}}
    control = {"tokens": tokens, "body_bytes_max": 20_000, "requests_per_second": 100_000}
    fleet = Fleet(directory, kafka.bootstrap_servers, f"t{uuid.uuid4().hex[:8]}", control=control, source=source)
    fleet.control(LOWWATER_TEST_VIEW=VIEW)
    yield fleet
    fleet.kill_all()


def _api(fleet: Fleet, token: str = "") -> Api:
    return Api(fleet._started[0], token).wait()


def test_without_a_token_nothing_is_told(guarded: Fleet) -> None:
    api = _api(guarded)
    for method, path in [
        ("GET", "/v1/fleet"),
        ("GET", "/v1/events"),
        ("PUT", "/v1/sources/x/pause"),
        ("GET", "/subjects"),
    ]:
        answer = api.client.request(method, path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["hint"]
    assert api.client.get("/health/ready").status_code == 200
    assert api.client.get("/").status_code == 200, "the page asks for the token"
    wrong = httpx.get(f"{api.url}/v1/fleet", headers={"Authorization": f"Bearer {VIEW}x"})
    assert wrong.status_code == 401
    api.close()


def test_view_looks_and_operate_does(guarded: Fleet) -> None:
    source = guarded.sources[0]
    looks, does = _api(guarded, VIEW), _api(guarded, OPERATE)
    assert source in looks.get("/v1/sources")
    assert "role `operate`" in looks.problem("PUT", f"/v1/sources/{source}/pause", 403)["hint"]
    assert looks.problem("DELETE", f"/v1/sources/{source}", 403)["title"] == "role"
    assert does.put(f"/v1/sources/{source}/pause")["wanted"] == "paused"
    assert does.put(f"/v1/sources/{source}/resume")["wanted"] == "running"
    looks.close()
    does.close()


def test_no_secret_comes_out_and_no_token_is_in_the_log(guarded: Fleet) -> None:
    source = guarded.sources[0]
    api = _api(guarded, VIEW)
    for path in (f"/v1/sources/{source}", f"/v1/sources/{source}/config", "/v1/sources?expand=config", "/v1/fleet"):
        text = api.client.get(path).text
        assert SECRET not in text
        assert VIEW not in text
    assert api.get(f"/v1/sources/{source}/config")["config"]["options"]["sslpassword"] == "***"
    log = guarded.log_tails()
    assert VIEW not in log
    assert OPERATE not in log
    api.close()


def test_a_registry_client_sends_the_token_as_a_password(guarded: Fleet) -> None:
    api = _api(guarded)
    with SchemaRegistryClient({"url": api.url, "basic.auth.user.info": f"anyone:{VIEW}"}) as client:
        assert client.get_subjects()
    api.close()


def test_a_large_request_is_refused_before_it_is_read(guarded: Fleet) -> None:
    api = _api(guarded, OPERATE)
    large = {"name": "x", "config": {"kind": "k" * 30_000}}
    assert api.problem("POST", "/v1/sources", 413, large)["title"] == "too-large"
    pieces = api.client.post("/v1/sources", content=(b"x" * 1000 for _ in range(100)))
    assert pieces.status_code == 413, "also where its length is not told"
    api.close()


def test_other_pages_and_other_names_of_this_machine_are_refused(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    api = Api(fleet.control()).wait()
    answer = api.client.get("/v1/fleet", headers={"Origin": "https://evil.example"})
    assert (answer.status_code, answer.json()["title"]) == (403, "foreign-origin")
    assert api.client.get("/v1/fleet", headers={"Origin": api.url}).status_code == 200
    assert api.client.get("/v1/fleet", headers={"Host": "evil.example"}).status_code == 403
    assert "access-control-allow-origin" not in api.client.get("/v1/fleet").headers
    api.close()


def test_who_asks_too_often_is_told_when_to_ask_again(new_fleet: NewFleet) -> None:
    fleet = new_fleet(control={"requests_per_second": 2})
    api = Api(fleet.control()).wait()
    answers = [api.client.get("/v1") for _ in range(30)]
    refused = [a for a in answers if a.status_code == 429]
    assert refused
    assert int(refused[0].headers["retry-after"]) >= 1
    api.close()


def test_beyond_loopback_it_does_not_start_without_tokens(new_fleet: NewFleet, tmp_path: Path) -> None:
    fleet = new_fleet(control={"host": "0.0.0.0", "port": free_port()})
    control = fleet.control()
    assert control.wait(30) == 1
    assert "no tokens are configured" in fleet.log_tails()
