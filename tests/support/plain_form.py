"""The Python that a compiled module was made of, as a module of its own: it checks every index that it uses."""

from __future__ import annotations

import importlib.util
from functools import cache
from types import ModuleType


@cache
def plain_form(name: str) -> ModuleType:
    source = importlib.util.find_spec(name)
    assert source is not None
    assert source.origin is not None
    path = source.origin.partition(".cpython")[0].removesuffix(".py") + ".py"
    spec = importlib.util.spec_from_file_location(f"plain_{name.rpartition('.')[2]}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
