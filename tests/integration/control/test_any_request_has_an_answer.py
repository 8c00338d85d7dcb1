"""A fuzz of the API by its own description: whatever is sent, it is never the service's own failure."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from tests.support.api import Api

#: endless by design
_STREAMS = ("/v1/events",)
#: each asks a process of its own
_SLOW = ("/validate", "/tables")


def _fuzz(api: Api, examples: int) -> int:
    """How many operations were tried."""
    schema = schemathesis.openapi.from_url(f"{api.url}/openapi.json")
    tried = 0
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]
        if operation.path in _STREAMS:
            continue
        count = max(2, examples // 5) if operation.path.endswith(_SLOW) else examples
        _try(operation, count)
        tried += 1
    return tried


def _try(operation: Any, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        case.call_and_validate(checks=[not_a_server_error], timeout=180)

    ask()


def test_no_request_is_a_server_error(api: Api) -> None:
    assert _fuzz(api, 8) > 40
    assert api.get("/health/ready").status_code == 200


@pytest.mark.long
def test_no_request_of_thousands_is_a_server_error(api: Api) -> None:
    assert _fuzz(api, 150) > 40
    assert api.get("/health/ready").status_code == 200
