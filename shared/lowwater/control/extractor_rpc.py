"""The extractor's own program, asked by those who have no drivers: `lowwater-extractor --ask` has the questions."""

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
    """By a process of its own: a database that hangs holds up nobody else."""
    text = json.dumps(request) + "\n"
    try:
        done = subprocess.run(COMMAND, input=text, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        raise SourceLostError(
            f"no answer in {seconds:.0f} s", hint="is the database reachable from here? is a firewall in between?"
        ) from None
    return answer_of(done.stdout)


def answer_of(line: str) -> dict[str, Any]:
    """An error of the program's is raised here, by its own name."""
    try:
        found: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        raise LowwaterError(
            "the extractor's program did not answer", hint="is lowwater-extractor installed on this machine?"
        ) from None
    error = found.get("error")
    if isinstance(error, dict):
        named = getattr(errors, str(error["error"]), SourceError)
        where = {name: error.get(name) for name in ("source", "thread", "position", "hint")}
        raise named(error["what"], **where)
    return found


def config_errors(kind: str, config: dict[str, Any], name: str) -> list[tuple[str, str]]:
    """What is wrong with a kind's config: (field, what)."""
    return wrong_fields(ask({"do": "config", "name": name, "kind": kind, "config": config}))


def wrong_fields(answer: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["field"], one["what"]) for one in answer["errors"]]
