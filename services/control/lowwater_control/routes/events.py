"""`/v1/fleet` and `/v1/events`: the status of all sources and groups, once and as a live stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool

from lowwater import __version__
from lowwater.errors import LowwaterError
from lowwater_control import models
from lowwater_control.dependencies import Parts, UseParts
from lowwater_control.problems import of_error, responses

router = APIRouter(prefix="/v1", tags=["fleet"])

EVENT_SECONDS = 1.0
#: keeps the connection open: proxies close idle ones
PING_SECONDS = 15


@router.get("", responses=responses())
def about() -> dict[str, str]:
    return {"name": "lowwater", "version": __version__}


@router.get("/fleet", responses=responses())
def fleet(parts: UseParts) -> models.FleetOverview:
    """The current and the desired state of all sources and groups."""
    return models.FleetOverview(**parts.control.overview())


@router.get(
    "/events",
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}, **responses()},
    response_class=EventSourceResponse,
)
async def events(parts: UseParts) -> EventSourceResponse:
    """Server-sent events: `fleet` with the body of GET /v1/fleet, about once a second; `problem` while Kafka does not
    answer."""
    return EventSourceResponse(_events(parts), ping=PING_SECONDS)


async def _events(parts: Parts) -> AsyncIterator[ServerSentEvent]:
    number = 0
    while True:
        number += 1
        try:
            name, data = "fleet", await run_in_threadpool(parts.control.overview)
        except LowwaterError as error:
            name, data = "problem", of_error(error)
        yield _event(number, name, data)
        await asyncio.sleep(EVENT_SECONDS)


def _event(number: int, name: str, data: dict[str, Any]) -> ServerSentEvent:
    text = json.dumps(data, separators=(",", ":"), default=str)
    return ServerSentEvent(data=text, event=name, id=str(number), retry=2000)
