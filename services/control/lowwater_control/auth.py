"""Checks every request before it is parsed: origin, request rate, token and role, body size."""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lowwater.runtime.config import ControlConfig, Role, TokenConfig
from lowwater.runtime.secrets import resolve
from lowwater_control.problems import answer, problem

LOOPBACK = ("127.0.0.1", "::1", "localhost")
#: burst size of the rate limit, in seconds of the permitted rate
BURST_SECONDS = 10.0
_CLIENTS_MAX = 10_000
#: served without a token, as they contain no names or data of the fleet; the page asks the user for the token. /metrics
#: has request counts by route only
_OPEN = ("/health/", "/page/", "/metrics", "/docs", "/openapi.json")
_READS = ("GET", "HEAD", "OPTIONS")


@dataclass(frozen=True, slots=True)
class Caller:
    name: str
    role: Role


class Tokens:
    """The configured tokens. They are read once at the start: a change takes a restart."""

    def __init__(self, configured: Sequence[TokenConfig]) -> None:
        self._known = [(resolve(one.token).strip().encode(), Caller(one.name, one.role)) for one in configured]

    @property
    def are_needed(self) -> bool:
        return bool(self._known)

    def caller(self, header: str) -> Caller | None:
        """The caller of `Bearer <token>` or `Basic` with the token as password (schema registry clients); else None."""
        scheme, _, value = header.partition(" ")
        given = value.strip().encode()
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                return None
        elif scheme.lower() != "bearer":
            return None
        found = None
        for token, caller in self._known:
            # all tokens are compared, each in constant time, so that response times reveal nothing
            if hmac.compare_digest(token, given) and given:
                found = caller
        return found


class RateLimit:
    """A token bucket for each client."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = per_second * BURST_SECONDS
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}

    def wait_seconds(self, client: str) -> float:
        """How long the client must wait before its next request; 0 if this one is permitted."""
        now = self._clock()
        left, at = self._buckets.pop(client, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_second)
        is_over = left < 1.0
        self._buckets[client] = (left if is_over else left - 1.0, now)
        if len(self._buckets) > _CLIENTS_MAX:
            del self._buckets[next(iter(self._buckets))]  # the least recently active client
        return (1.0 - left) / self._per_second if is_over else 0.0


class Guard:
    """ASGI middleware that rejects requests before they are parsed."""

    def __init__(self, app: ASGIApp, config: ControlConfig) -> None:
        self._app = app
        self._config = config
        self._tokens = Tokens(config.tokens)
        self._rate = RateLimit(config.requests_per_second)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        client = (scope.get("client") or ("",))[0]
        refused = self._origin(headers) or self._limit(client) or self._caller(scope, headers)
        body: list[Message] = []
        if refused is None and scope["method"] not in _READS:
            refused = await self._read(headers, receive, body)
        if refused is not None:
            await answer(*refused)(scope, receive, send)
            return
        await self._app(scope, _replay(body, receive), send)

    def _origin(self, headers: Headers) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Reject requests from other web pages in the user's browser, also by DNS rebinding."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        name = urlsplit(f"//{host}").hostname or ""
        is_foreign_host = not self._tokens.are_needed and self._config.host in LOOPBACK and name not in LOOPBACK
        if is_foreign_host or (origin is not None and urlsplit(origin).netloc != host):
            return problem(403, "foreign-origin", "the request came from another web page", hint="CORS is off"), {}
        return None

    def _limit(self, client: str) -> tuple[dict[str, Any], dict[str, str]] | None:
        wait = self._rate.wait_seconds(client)
        if not wait:
            return None
        limit = f"{self._config.requests_per_second:g} a second"
        body = problem(429, "too-many", f"more than {limit}", hint="raise control.requests_per_second or send fewer")
        return body, {"Retry-After": str(max(1, round(wait)))}

    def _caller(self, scope: Scope, headers: Headers) -> tuple[dict[str, Any], dict[str, str]] | None:
        path = scope["path"]
        scope.setdefault("state", {})["caller"] = Caller("loopback", Role.OPERATE)
        if not self._tokens.are_needed or path == "/" or path.startswith(_OPEN):
            return None
        caller = self._tokens.caller(headers.get("authorization", ""))
        if caller is None:
            hint = "send `Authorization: Bearer <token>` with a token of control.tokens"
            return problem(401, "no-token", "a token is needed", hint=hint), {"WWW-Authenticate": "Bearer"}
        scope["state"]["caller"] = caller
        if scope["method"] not in _READS and caller.role is not Role.OPERATE:
            what = f"{caller.name} may read, but not change anything"
            return problem(403, "role", what, hint="use a token with the role `operate`"), {}
        return None

    async def _read(
        self, headers: Headers, receive: Receive, into: list[Message]
    ) -> tuple[dict[str, Any], dict[str, str]] | None:
        """Read the whole body into `into`; a body over the limit is rejected."""
        most = self._config.body_bytes_max
        length = headers.get("content-length", "0")
        size = 0
        is_over = length.isdigit() and int(length) > most
        while not is_over:
            message = await receive()
            into.append(message)
            size += len(message.get("body", b""))
            is_over = size > most
            if message["type"] == "http.disconnect" or not message.get("more_body", False):
                break
        if is_over:
            return problem(413, "too-large", f"a request has {most} bytes at most"), {}
        return None


def _replay(messages: list[Message], receive: Receive) -> Receive:
    left = iter(messages)

    async def again() -> Message:
        for message in left:
            return message
        return await receive()

    return again
