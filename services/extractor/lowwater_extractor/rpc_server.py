"""`lowwater-extractor --ask`: runs code of source kinds for processes that do not have their drivers installed.

Reads one JSON request per line from stdin and writes one JSON response per line to stdout, until stdin ends:

    {"do": "kinds"}                                      → {kind: {"schema": …} or {"error": …}}
    {"do": "config", "name", "kind", "config"}           → {"errors": [{"field", "what"}]}
    {"do": "check", "name", "kind", "config"}            → {"checks": [{"name", "is_good", "what", "fix"}]}
    {"do": "tables", "name", "kind", "config"}           → {"tables": [{"table", "key", "columns", "can_copy"}]}
    {"do": "reset", "settings", "name"}                  → {"done": …}
    {"do": "move", "settings", "name", "threads"}        → {"done": …}

The response to a request that raises a LowwaterError is {"error": its fields}.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

from pydantic import ValidationError

from lowwater.errors import LowwaterError
from lowwater.records.positions import Order
from lowwater.runtime.config import Settings
from lowwater_extractor.api import Source
from lowwater_extractor.session.reset import move_position, reset_position
from lowwater_extractor.sources import kinds, open_source, source_class

Request = dict[str, Any]


def _kinds(_: Request) -> Any:
    return {kind: _kind(kind) for kind in sorted(kinds())}


def _kind(kind: str) -> dict[str, Any]:
    try:
        cls = source_class(kind)
    except ImportError as error:
        return {"error": f"its driver is not installed: {error}"}
    except LowwaterError as error:
        return {"error": error.what}
    return {"schema": cls.config_model.model_json_schema()}


def _config(request: Request) -> Any:
    try:
        source_class(request["kind"]).config_model(**request["config"])
    except ValidationError as error:
        # without the input, which may contain a secret
        found = [(".".join(map(str, e["loc"])), e["msg"]) for e in error.errors(include_input=False)]
        return {"errors": [{"field": field, "what": what} for field, what in found]}
    return {"errors": []}


def _source(request: Request) -> Source:
    return open_source(request["name"], request["kind"], request["config"])


def _check(request: Request) -> Any:
    return {"checks": [one._asdict() for one in _source(request).check()]}


def _tables(request: Request) -> Any:
    found = []
    source = _source(request)
    to_copy = {table.full_name for table in source.tables_to_copy()}
    for table in sorted(source.discover(), key=lambda t: t.full_name):
        columns = [{"name": column.name, "type": column.type.kind.value} for column in table.columns]
        name = table.full_name
        found.append({"table": name, "key": list(table.key), "columns": columns, "can_copy": name in to_copy})
    return {"tables": found}


def _reset(request: Request) -> Any:
    return {"done": reset_position(Settings(**request["settings"]), request["name"])}


def _move(request: Request) -> Any:
    places = {t["thread"]: (base64.b64decode(t["resume"]), Order.parse(t["mark"])) for t in request["threads"]}
    return {"done": move_position(Settings(**request["settings"]), request["name"], places)}


_ANSWERS: dict[str, Callable[[Request], Any]] = {
    "kinds": _kinds,
    "config": _config,
    "check": _check,
    "tables": _tables,
    "reset": _reset,
    "move": _move,
}


def ask(_arguments: list[str]) -> int:
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = _ANSWERS[request["do"]](request)
        except LowwaterError as error:
            answer = {"error": error.fields()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    return 0
