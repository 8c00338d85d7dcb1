"""Requests to `lowwater-extractor --ask`, from services that have no database drivers installed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from lowwater import errors
from lowwater.errors import LowwaterError, SourceError, SourceLostError

COMMAND = [sys.executable, "-m", "lowwater_extractor", "--ask"]
LIVE_SECONDS_MAX = 60.0


def ask(request: dict[str, Any], seconds: float = LIVE_SECONDS_MAX) -> dict[str, Any]:
    """Sends a request to a new process, so that a database that hangs does not block the caller.

    Raises SourceLostError after `seconds`, and the error of the request.
    """
    text = json.dumps(request) + "\n"
    try:
        done = subprocess.run(COMMAND, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SourceLostError(
            f"no answer in {seconds:.0f} s", hint="check that the database is reachable from here, firewalls included"
        ) from None
    return answer_of(done.stdout)


def answer_of(line: str) -> dict[str, Any]:
    """The decoded response. An error in it is raised with its original class."""
    try:
        found: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        raise LowwaterError(
            "lowwater-extractor did not answer", hint="is lowwater-extractor installed on this machine?"
        ) from None
    error = found.get("error")
    if isinstance(error, dict):
        named = getattr(errors, str(error["error"]), SourceError)
        where = {name: error.get(name) for name in ("source", "thread", "position", "hint")}
        raise named(error["what"], **where)
    return found


def config_errors(kind: str, config: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """Errors in the config of a source kind: (field, what is wrong)."""
    return wrong_fields(ask({"do": "config", "name": name, "kind": kind, "config": config}))


def wrong_fields(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["field"], one["what"]) for one in answer["errors"]]
