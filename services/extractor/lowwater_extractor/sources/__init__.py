"""The source kinds: name → module and class.

A kind is imported only when it is used, so that its driver need not be installed otherwise. Another distribution adds
kinds by entry points of the group `lowwater.source_kinds`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from pydantic import ValidationError

from lowwater.errors import ConfigError
from lowwater.runtime.plugins import SOURCE_KINDS, load_plugin, plugins
from lowwater_extractor.api import Source

_BUILT_IN = {
    "mysql": "lowwater_extractor.sources.mysql.source:Mysql",
    "mongodb": "lowwater_extractor.sources.mongodb.source:MongoDB",
    "oracle": "lowwater_extractor.sources.oracle.source:Oracle",
    "postgres": "lowwater_extractor.sources.postgres.source:Postgres",
    "turso": "lowwater_extractor.sources.turso.source:Turso",
}


def kinds() -> set[str]:
    """Return all kinds; a built-in one cannot be replaced."""
    return {*plugins(SOURCE_KINDS), *_BUILT_IN}


def source_class(kind: str) -> type[Any]:
    if kind in _BUILT_IN:
        module, _, name = _BUILT_IN[kind].partition(":")
        found: type[Any] = getattr(import_module(module), name)
        return found
    if kind not in plugins(SOURCE_KINDS):
        more = " (simulated_rac is in the distribution lowwater-devkit)" if kind == "simulated_rac" else ""
        raise ConfigError(f"there is no source kind {kind!r}", hint=f"known: {', '.join(sorted(kinds()))}{more}")
    loaded: type[Any] = load_plugin(SOURCE_KINDS, kind)
    return loaded


def open_source(name: str, kind: str, config: dict[str, Any]) -> Source:
    """Return a source of this kind. ConfigError: the kind is unknown or its config is invalid."""
    cls = source_class(kind)
    try:
        model = cls.config_model(**config)
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ConfigError(f"source {name} ({kind}): " + "; ".join(lines), source=name) from None
    source: Source = cls(name, model)
    return source
