"""Generates the chart's README, with a table of its values from the helm-docs comments (`# -- …`) in values.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).resolve().parent.parent / "helm/lowwater"

_LINE = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z][\w]*):(?P<value> .*)?$")


def _comments(text: str) -> dict[str, str]:
    """Full path of a key → the comment before it."""
    found: dict[str, str] = {}
    path: list[str] = []
    comment = ""
    for line in text.splitlines():
        if line.strip().startswith("# --"):
            comment = line.strip().removeprefix("# --").strip()
        elif match := _LINE.match(line):
            depth = len(match["indent"]) // 2
            path = [*path[:depth], match["key"]]
            found[".".join(path)] = comment
            comment = ""
        else:
            comment = ""
    return found


def _leaves(value: Any, path: str, comments: dict[str, str]) -> Iterator[tuple[str, Any]]:
    """The rows of the table: scalars and lists, and mappings that are empty or have a comment."""
    is_inner = isinstance(value, dict) and value and not comments.get(path)
    if not is_inner:
        yield path, value
        return
    for key, inner in value.items():
        yield from _leaves(inner, f"{path}.{key}" if path else key, comments)


def _type(value: Any) -> str:
    names = {bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "object"}
    return names.get(type(value), "string")


def table() -> str:
    text = (CHART / "values.yaml").read_text()
    comments = _comments(text)
    lines = ["| Key | Type | Default | Description |", "|-----|------|---------|-------------|"]
    for key, value in sorted(_leaves(yaml.safe_load(text), "", comments)):
        lines.append(f"| {key} | {_type(value)} | `{json.dumps(value)}` | {comments.get(key, '')} |")
    return "\n".join(lines)


def page() -> str:
    """README.md.gotmpl with its templates filled in; equal to the output of helm-docs."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    filled = {
        '{{ template "chart.header" . }}': f"# {chart['name']}",
        '{{ template "chart.description" . }}': chart["description"],
        '{{ template "chart.versionLine" . }}': f"Version {chart['version']}, appVersion {chart['appVersion']}, "
        f"Kubernetes {chart['kubeVersion']}",
        '{{ template "chart.valuesTable" . }}': table(),
    }
    text = (CHART / "README.md.gotmpl").read_text()
    for name, value in filled.items():
        text = text.replace(name, value)
    return text
