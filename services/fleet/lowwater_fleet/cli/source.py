"""`lowwater source list|status|add|config|tables` and `lowwater group list|status`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from pydantic import ValidationError
from rich.table import Table

from lowwater.control import commands as words
from lowwater.control.commands import SOURCE
from lowwater.control.desired_state import SourceSpec, check_secrets, shown, to_json
from lowwater.control.extractor_rpc import ask, config_errors
from lowwater.errors import ConfigError, ControlConflictError
from lowwater.records.types import Control
from lowwater.runtime.config import Settings
from lowwater_fleet.cli.console import out, show
from lowwater_fleet.cli.contract import EXIT_BAD, AsJson, ConfigOption, load, say_json
from lowwater_fleet.cli.fleet_view import viewing
from lowwater_fleet.cli.operate import fleet_of, group_app, known, print_checks, say, source_app, tell
from lowwater_fleet.cli.status import draw

#: also has the commands of `operate.py`
app = source_app


@source_app.command("list")
def list_sources(config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """List all sources with their state."""
    with viewing(load(config_file)) as view:
        sources = list(view.overview()["sources"].values())
    rows = [{name: s[name] for name in ("name", "kind", "group", "state", "wanted")} for s in sources]
    if as_json:
        say_json(rows)
        return
    table = Table("source", "kind", "group", "state", "wanted")
    for row in rows:
        table.add_row(*(str(value or "") for value in row.values()))
    show(table)


def _overview(settings: Settings, kind: str, name: str) -> dict[str, Any]:
    with viewing(settings) as view:
        known(view.fleet, kind, name)
        return view.overview()


@source_app.command("status")
def source_status(name: str, config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Status of one source: threads, marks, error. The exit code is 1 if it has an error."""
    overview = _overview(load(config_file), SOURCE, name)
    source = overview["sources"][name]
    if as_json:
        say_json(source)
    else:
        show(draw({**overview, "sources": {name: source}, "groups": {}}))
    if source["error"] is not None:
        raise typer.Exit(EXIT_BAD)


@group_app.command("status")
def group_status(group: str, config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Status of one group: watermark, the thread that holds it and for how long, waiting transactions."""
    overview = _overview(load(config_file), words.GROUP, group)
    found = overview["groups"][group]
    if as_json:
        say_json(found)
        return
    sources = {name: source for name, source in overview["sources"].items() if source["group"] == group}
    show(draw({**overview, "sources": sources, "groups": {group: found}}))
    if found["holder"]:
        out.print(f"held: {found['holder']['why']}", style="yellow", markup=False)


@group_app.command("list")
def list_groups(config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """List all groups with their state and last gsn."""
    with viewing(load(config_file)) as view:
        groups = list(view.overview()["groups"].values())
    rows = [{name: g[name] for name in ("name", "sources", "state", "wanted", "gsn", "waiting")} for g in groups]
    if as_json:
        say_json(rows)
        return
    table = Table("group", "sources", "state", "wanted", "gsn", "waiting")
    for row in rows:
        table.add_row(*(", ".join(v) if isinstance(v, list) else str(v) for v in row.values()))
    show(table)


@source_app.command("config")
def source_config(name: str, config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Print a source's config, with references to secrets instead of their values."""
    fleet = fleet_of(load(config_file))
    known(fleet, SOURCE, name)
    spec = shown(fleet.sources[name].model_dump(mode="json", exclude_unset=True))
    if as_json:
        say_json(spec)
    else:
        out.print(yaml.safe_dump(spec, sort_keys=False).rstrip(), markup=False)


@source_app.command("tables")
def source_tables(name: str, config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """List the captured tables, as they currently are in the database."""
    fleet = fleet_of(load(config_file))
    known(fleet, SOURCE, name)
    spec = fleet.sources[name]
    found = ask({"do": "tables", "name": name, "kind": spec.kind, "config": spec.config})["tables"]
    if as_json:
        say_json(found)
        return
    table = Table("table", "key", "columns")
    for one in found:
        table.add_row(one["table"], ", ".join(one["key"]), ", ".join(column["name"] for column in one["columns"]))
    show(table)


@source_app.command("add")
def add_source(
    name: str,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="YAML or JSON: kind, group, config, …")] = None,
    kind: Annotated[str | None, typer.Option("--kind", "-k", help="postgres, oracle, …")] = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="the group that it joins")] = None,
    settings_given: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="name=value of the kind's config; a value may be JSON")
    ] = None,
    checks: Annotated[bool, typer.Option(help="check the database first")] = True,
    config_file: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Add a source: a runner starts its extractor, and it joins its group."""
    settings = load(config_file)
    spec = _spec(file, kind, group, settings_given or [])
    fleet = fleet_of(settings)
    if name in fleet.sources:
        raise ConfigError(f"source {name!r} already exists", hint="`source remove` it first, or use another name")
    if spec.group is not None:
        known(fleet, words.GROUP, spec.group)
    wrong = check_secrets(spec.config) or config_errors(spec.kind, spec.config, name)
    if wrong:
        raise ConfigError("; ".join(f"{field}: {what}" for field, what in wrong))
    if checks:
        _check(name, spec)
    state = say(settings, SOURCE, name, _add(name, to_json(spec)))
    tell({"source": name, "wanted": state.control.wanted.value, "version": state.version}, as_json)


def _spec(file: Path | None, kind: str | None, group: str | None, given: list[str]) -> SourceSpec:
    raw: dict[str, Any] = {}
    if file is not None:
        try:
            raw = yaml.safe_load(file.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"{file} cannot be read as YAML", hint=type(error).__name__) from None
    raw |= {"kind": kind} if kind else {}
    raw |= {"group": group} if group else {}
    config = dict(raw.get("config") or {})
    for one in given:
        field, _, value = one.partition("=")
        config[field] = _value(value)
    try:
        return SourceSpec(**{**raw, "config": config})
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False)]
        raise ConfigError("; ".join(lines), hint="give --kind, or --file") from None


def _value(text: str) -> Any:
    """Parsed as JSON if possible (numbers, lists, true), else the text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _check(name: str, spec: SourceSpec) -> None:
    found = ask({"do": "check", "name": name, "kind": spec.kind, "config": spec.config})["checks"]
    if not all(one["is_good"] for one in found):
        print_checks(found)
        raise ConfigError("checks of the database failed", hint="fix them, or add the source with --no-checks")


def _add(name: str, config: str) -> words.Change:
    def change(control: Control) -> Control:
        if control.config:
            # added concurrently
            raise ControlConflictError(f"source {name!r} already exists", hint="see `lowwater source status`")
        return words.configure(config, "added")(control)

    return change
