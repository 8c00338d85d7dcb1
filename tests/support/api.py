"""The control API as a client sees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx

from lowwater_fleet.runner.services import Service
from tests.support.harness import wait_until

JSON = dict[str, Any]


class Api:
    """Speaks to one replica; a wrong status is an assertion with the whole answer in it."""

    def __init__(self, service: Service, token: str = "") -> None:
        self.service = service
        self.url = f"http://127.0.0.1:{service.http_port}"
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=self.url, timeout=60, headers=headers)

    def wait(self) -> Api:
        wait_until(f"the API at {self.url}", self._is_ready, 40)
        return self

    def _is_ready(self) -> bool:
        try:
            return self.client.get("/health/ready").status_code == 200
        except httpx.TransportError:
            return False

    def close(self) -> None:
        self.client.close()

    def call(self, method: str, path: str, status: int, body: Any = None, **options: Any) -> Any:
        answer = self.client.request(method, path, json=body, **options)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content and "json" in answer.headers["content-type"] else answer

    def get(self, path: str, status: int = 200, **options: Any) -> Any:
        return self.call("GET", path, status, **options)

    def post(self, path: str, body: Any = None, status: int = 202) -> Any:
        return self.call("POST", path, status, body)

    def put(self, path: str, body: Any = None, status: int = 202) -> Any:
        return self.call("PUT", path, status, body)

    def delete(self, path: str, status: int = 204) -> Any:
        return self.call("DELETE", path, status)

    def problem(self, method: str, path: str, status: int, body: Any = None) -> JSON:
        """Of a request that is refused; it says so as RFC 9457 has it."""
        answer = self.client.request(method, path, json=body)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        assert answer.headers["content-type"] == "application/problem+json"
        found: JSON = answer.json()
        assert found["status"] == status
        assert found["type"].startswith("urn:lowwater:problem:")
        return found

    def wait_for(self, path: str, what: str, check: Callable[[JSON], Any], seconds: float = 40) -> JSON:
        seen: JSON = {}

        def look() -> bool:
            seen.clear()
            seen.update(self.get(path))
            return bool(check(seen))

        try:
            wait_until(what, look, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; {path} shows {seen}") from error
        return seen

    def wait_for_source(self, name: str, state: str) -> JSON:
        return self.wait_for(f"/v1/sources/{name}/status", f"{name} is {state}", lambda s: s["state"] == state)

    def events(self) -> Iterator[tuple[str, JSON]]:
        with self.client.stream("GET", "/v1/events") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            name = ""
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    name = line[6:].strip()
                elif line.startswith("data:"):
                    yield name, json.loads(line[5:])
