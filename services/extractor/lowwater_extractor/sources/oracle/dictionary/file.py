"""The dictionary as JSON: in a file, and as it is stored in Kafka."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from lowwater.errors import ConfigError
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary, TableVersion
from lowwater_extractor.sources.oracle.types import OracleColumn

FORMAT = 1

_COLUMN_FIELDS = {f.name: f for f in fields(OracleColumn)}
_TABLE_FIELDS = {f.name: f for f in fields(TableVersion) if f.name not in ("source", "schema")}
#: the annotation of a dataclass field → the Python types of its JSON value
_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "Scn": (int,),
    "bool": (bool,),
    "int | None": (int, type(None)),
    "bytes | None": (str, type(None)),
    "tuple[str, ...]": (list,),
    "tuple[int, ...]": (list,),
    "tuple[OracleColumn, ...]": (list,),
}


def to_json(dictionary: Dictionary) -> dict[str, Any]:
    return {"format": FORMAT, "tables": [table_to_json(version) for version in dictionary]}


def from_json(source: str, raw: Any, where: str = "the dictionary") -> Dictionary:
    if not isinstance(raw, dict) or not isinstance(raw.get("tables"), list):
        raise _bad(source, where, "it is not a JSON object with `format` and `tables`")
    if raw.get("format") != FORMAT:
        raise _bad(source, where, f"it has format {raw.get('format')!r}, this version supports format {FORMAT}")
    tables = [table_from_json(source, one, f"{where}, table {n}") for n, one in enumerate(raw["tables"], 1)]
    return Dictionary(tables)


def save(dictionary: Dictionary, path: Path) -> None:
    """Write the file atomically."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(to_json(dictionary), indent=1) + "\n")
    partial.replace(path)


def load(source: str, path: Path) -> Dictionary:
    try:
        raw = json.loads(path.read_text())
    except OSError as error:
        raise _bad(source, str(path), f"it cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise _bad(source, str(path), f"it is not JSON ({error})") from error
    return from_json(source, raw, str(path))


def table_to_json(version: TableVersion) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for name, described in _TABLE_FIELDS.items():
        value = getattr(version, name)
        if name == "columns":
            raw[name] = [_column_to_json(column) for column in value]
        elif value != described.default:
            raw[name] = list(value) if isinstance(value, tuple) else value
    return raw


def _column_to_json(column: OracleColumn) -> dict[str, Any]:
    raw: dict[str, Any] = {}
    for name, described in _COLUMN_FIELDS.items():
        value = getattr(column, name)
        if value != described.default:
            raw[name] = value.hex() if isinstance(value, bytes) else value
    return raw


def table_from_json(source: str, raw: Any, where: str = "the dictionary") -> TableVersion:
    values = _checked(source, raw, _TABLE_FIELDS, where)
    name = f"{where} ({values['owner']}.{values['table']})"
    columns = [
        _column_from_json(source, column, f"{name}, column {number}")
        for number, column in enumerate(values["columns"], 1)
    ]
    for field, value in values.items():
        if isinstance(value, list):
            values[field] = tuple(value)
    return TableVersion(source=source, **{**values, "columns": tuple(columns)})


def _column_from_json(source: str, raw: Any, where: str) -> OracleColumn:
    values = _checked(source, raw, _COLUMN_FIELDS, where)
    if values.get("default") is not None:
        try:
            values["default"] = bytes.fromhex(values["default"])
        except ValueError as error:
            raise _bad(source, where, "`default` is not hexadecimal") from error
    return OracleColumn(**values)


def _checked(source: str, raw: Any, known: dict[str, Any], where: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise _bad(source, where, "it is not a JSON object")
    if unknown := sorted(set(raw) - set(known)):
        raise _bad(source, where, f"it has unknown fields: {', '.join(unknown)}")
    for name, described in known.items():
        if name not in raw:
            if described.default is MISSING:
                raise _bad(source, where, f"`{name}` is missing")
            continue
        types = _JSON_TYPES[described.type]
        value = raw[name]
        # in Python a bool is an int
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise _bad(source, where, f"`{name}` is {value!r}, where {described.type} is expected")
        items = str if described.type == "tuple[str, ...]" else int if described.type == "tuple[int, ...]" else None
        if items is not None and not all(isinstance(item, items) for item in raw[name]):
            raise _bad(source, where, f"`{name}` has items that are not {items.__name__}")
    return dict(raw)


def _bad(source: str, where: str, what: str) -> ConfigError:
    return ConfigError(
        f"{where}: {what}",
        source=source,
        hint="create it again from the database, or fix it by hand",
    )
