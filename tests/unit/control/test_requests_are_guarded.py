"""Tokens, limits and origins, without a server."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from lowwater.runtime.config import ControlConfig, Role, TokenConfig
from lowwater_control.auth import BURST_SECONDS, Guard, RateLimit, Tokens


@pytest.fixture
def tokens(monkeypatch: pytest.MonkeyPatch) -> list[TokenConfig]:
    monkeypatch.setenv("LOOK", "look\n")
    monkeypatch.setenv("DO", "do")
    looks = TokenConfig(name="screen", role=Role.VIEW, token="${env:LOOK}")
    return [looks, TokenConfig(name="operator", role=Role.OPERATE, token="${env:DO}")]


def test_a_token_is_known_by_its_whole_value(tokens: list[TokenConfig]) -> None:
    known = Tokens(tokens)
    found = known.caller("Bearer look")
    assert found is not None
    assert (found.name, found.role) == ("screen", Role.VIEW)
    basic = base64.b64encode(b"whoever:do").decode()
    as_password = known.caller(f"basic {basic}")
    assert as_password is not None
    assert as_password.role is Role.OPERATE
    for wrong in (
        "",
        "Bearer",
        "Bearer ",
        "Bearer loo",
        "Bearer looks",
        "look",
        "Basic x",
        "Digest look",
        "Basic bG9vaw==",
    ):
        assert known.caller(wrong) is None, wrong


def test_a_token_is_a_reference_never_a_value() -> None:
    with pytest.raises(ValueError, match="token holds a secret"):
        TokenConfig(name="x", token="hunter2")


def test_a_client_may_save_up_a_little_and_then_waits() -> None:
    now = 0.0
    limit = RateLimit(2.0, lambda: now)
    burst = int(2 * BURST_SECONDS)
    assert [limit.wait_seconds("a") for _ in range(burst)] == [0.0] * burst
    assert limit.wait_seconds("a") == pytest.approx(0.5)
    assert limit.wait_seconds("b") == 0.0, "another client is not held up"
    now = 0.5
    assert limit.wait_seconds("a") == 0.0
    assert limit.wait_seconds("a") > 0


def _ask(config: ControlConfig, method: str, path: str, **options: Any) -> httpx.Response:
    async def echo(request: Request) -> JSONResponse:
        return JSONResponse({"size": len(await request.body()), "caller": request.state.caller.name})

    app = Guard(Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])]), config)

    async def ask() -> httpx.Response:
        base = "http://127.0.0.1:8080"
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base) as client:
            return await client.request(method, path, **options)

    return asyncio.run(ask())


def test_a_body_passes_whole_or_not_at_all() -> None:
    config = ControlConfig(body_bytes_max=2000)
    assert _ask(config, "POST", "/v1", content=b"x" * 2000).json() == {"size": 2000, "caller": "loopback"}
    assert _ask(config, "POST", "/v1", content=b"x" * 2001).status_code == 413


def test_roles_are_asked_for_by_method(tokens: list[TokenConfig]) -> None:
    config = ControlConfig(host="0.0.0.0", tokens=tokens)
    look, do = ({"Authorization": f"Bearer {t}"} for t in ("look", "do"))
    assert _ask(config, "GET", "/v1/fleet", headers=look).json()["caller"] == "screen"
    assert _ask(config, "POST", "/v1/sources", headers=look).status_code == 403
    assert _ask(config, "POST", "/v1/sources", headers=do).status_code == 200
    assert _ask(config, "GET", "/v1/fleet").status_code == 401
    assert _ask(config, "GET", "/health/live").status_code == 200
    assert _ask(config, "GET", "/subjects").status_code == 401


def test_a_page_from_elsewhere_cannot_speak_to_loopback() -> None:
    config = ControlConfig()
    assert _ask(config, "GET", "/v1", headers={"Origin": "http://127.0.0.1:8080"}).status_code == 200
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Host": "evil.example:8080"}):
        assert _ask(config, "GET", "/v1", headers=headers).status_code == 403, headers
