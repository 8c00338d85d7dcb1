"""Errors as problem details (RFC 9457): what happened, where, and a hint what to do."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from lowwater.errors import (
    ConfigError,
    ControlConflictError,
    LakeError,
    LowwaterError,
    SourceError,
    StaleTableError,
)

MEDIA_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    field: str = Field(examples=["config.config.password"])
    detail: str = Field(examples=["password holds a secret: write ${env:NAME} or ${file:/path} instead of the value"])


class Problem(BaseModel):
    """`type` identifies the problem for programs; `hint` tells an operator what to do."""

    type: str = Field(examples=["urn:lowwater:problem:unknown"])
    title: str = Field(examples=["unknown"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no source 'bnak'"])
    hint: str | None = Field(default=None, examples=["known: bank, orders"])
    source: str | None = None
    thread: int | None = None
    position: str | None = None
    errors: list[FieldProblem] = Field(default=[], description="errors of a config or body, field by field")


class ApiError(LowwaterError):
    """A request that cannot be fulfilled; `status` is the HTTP status of the response."""

    status = 400
    title = "refused"

    def __init__(self, what: str, *, errors: list[FieldProblem] | None = None, **where: Any) -> None:
        super().__init__(what, **where)
        self.errors = errors or []


class UnknownError(ApiError):
    status, title = 404, "unknown"


class ConflictError(ApiError):
    status, title = 409, "conflict"


class InvalidError(ApiError):
    status, title = 422, "invalid"


class BusyError(ApiError):
    status, title = 503, "busy"


class SlowError(ApiError):
    status, title = 504, "no-answer"


def unknown(what: str, name: str, known: Any) -> UnknownError:
    names = ", ".join(sorted(known)) or "none"
    return UnknownError(f"there is no {what} {name!r}", hint=f"known: {names}")


def problem(status: int, title: str, detail: str, **more: Any) -> dict[str, Any]:
    body = {"type": f"urn:lowwater:problem:{title}", "title": title, "status": status, "detail": detail, **more}
    return Problem(**body).model_dump(exclude_none=True)


#: HTTP statuses of lowwater's errors; all other errors are 503
_STATUS: tuple[tuple[type[LowwaterError], tuple[int, str]], ...] = (
    (ControlConflictError, (409, "conflict")),
    (ConfigError, (422, "invalid")),
    (StaleTableError, (409, "stale")),
    (LakeError, (404, "unknown")),
    (SourceError, (424, "database")),
)


def of_error(error: LowwaterError) -> dict[str, Any]:
    where = {name: value for name, value in error.fields().items() if name in ("source", "thread", "position", "hint")}
    if isinstance(error, ApiError):
        return problem(error.status, error.title, error.what, errors=error.errors, **where)
    status, title = next((found for kind, found in _STATUS if isinstance(error, kind)), (503, "unavailable"))
    return problem(status, title, error.what, **where)


def answer(body: dict[str, Any], headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse(body, status_code=body["status"], media_type=MEDIA_TYPE, headers=headers)


def _validation(error: RequestValidationError) -> dict[str, Any]:
    """The input is not included in the response: it may contain a secret."""
    found = []
    for one in error.errors():
        place = [str(part) for part in one["loc"]]
        field = ".".join(place[1:] if place[0] in ("body", "query", "path", "header") else place)
        found.append(FieldProblem(field=field or place[0], detail=one["msg"]))
    what = "; ".join(f"{one.field}: {one.detail}" for one in found)
    return problem(422, "invalid", what, errors=found, hint="`errors` lists the fields; see also /docs")


def add_problems(app: FastAPI) -> None:
    @app.exception_handler(LowwaterError)
    def _ours(_request: Request, error: LowwaterError) -> JSONResponse:
        return answer(of_error(error))

    @app.exception_handler(RequestValidationError)
    def _invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        return answer(_validation(error))

    @app.exception_handler(HTTPException)
    def _http(_request: Request, error: HTTPException) -> JSONResponse:
        titles = {404: "unknown", 405: "method-not-allowed"}
        title = titles.get(error.status_code, "refused")
        body = problem(error.status_code, title, str(error.detail), hint="/docs lists all routes")
        return answer(body, dict(error.headers or {}))


def responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the error responses of a route."""
    said = {
        401: "no token, or a wrong one",
        403: "the token's role does not permit this, or the request came from another web page",
        404: "not found",
        409: "the request conflicts with the current state, or with a concurrent change",
        413: "the request is too large",
        424: "the source's database rejected the request or does not answer",
        422: "a field is invalid: see `errors`",
        429: "too many requests: `Retry-After` says when to retry",
        503: "Kafka, the lake or another component does not answer",
        504: "the data could not be read in time",
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    wanted = sorted({401, 403, 413, 422, 429, 503, *statuses})
    return {status: {"description": said[status], "content": {MEDIA_TYPE: {"schema": schema}}} for status in wanted}
