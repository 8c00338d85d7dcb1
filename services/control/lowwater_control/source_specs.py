"""Checks a source's config, field by field, with the model of its kind, before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

from lowwater.control.desired_state import SourceSpec, check_secrets
from lowwater.runtime.config import Model, Name
from lowwater_control.dependencies import Parts
from lowwater_control.problems import FieldProblem, InvalidError, unknown


class _Named(Model):
    name: Name


def refuse(errors: Sequence[tuple[str, str]], hint: str | None = None) -> None:
    if errors:
        found = [FieldProblem(field=field, detail=what) for field, what in errors]
        raise InvalidError("; ".join(f"{field}: {what}" for field, what in errors), errors=found, hint=hint)


def check_name(name: str) -> None:
    try:
        _Named(name=name)
    except ValidationError as error:
        refuse([("name", e["msg"]) for e in error.errors(include_input=False)])


def check_kind(parts: Parts, kind: str) -> None:
    kinds = parts.program.kinds()
    if kind not in kinds:
        raise unknown("source kind", kind, kinds)


def config_errors(parts: Parts, name: str, kind: str, config: dict[str, Any], prefix: str) -> list[tuple[str, str]]:
    secrets = check_secrets(config)
    wrong = secrets or parts.program.config_errors(name, kind, config)
    return [(".".join(filter(None, (prefix, field))), what) for field, what in wrong]


def check_spec(parts: Parts, name: str, spec: SourceSpec, prefix: str) -> None:
    """Raises InvalidError with the invalid fields. `prefix`: path of the spec in the request body."""
    check_name(name)
    here = f"{prefix}." if prefix else ""
    kinds = parts.program.kinds()
    if spec.kind not in kinds:
        refuse([(f"{here}kind", f"there is no kind {spec.kind!r}")], hint=f"known: {', '.join(kinds)}")
    groups = parts.control.fleet().groups
    if spec.group is not None and spec.group not in groups:
        refuse(
            [(f"{here}group", f"there is no group {spec.group!r}")],
            hint=f"create it with PUT /v1/groups/{spec.group}/config; known: {', '.join(groups) or 'none'}",
        )
    refuse(config_errors(parts, name, spec.kind, spec.config, f"{here}config"))


def check_change(name: str, before: SourceSpec, after: SourceSpec) -> None:
    """Raises InvalidError if a field changed that cannot be changed after creation."""
    for field in ("kind", "partitions"):
        old, new = getattr(before, field), getattr(after, field)
        if old != new:
            what = f"cannot be changed from {old} to {new}"
            refuse([(field, what)], hint=f"add another source, or remove {name} with its topics first")
