"""An operator's words: pause and resume a source, exclude a thread, skip one transaction, look at a group."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from lowwater import config, topics
from lowwater.bus.admin import Admin
from lowwater.config import Settings
from lowwater.control import ControlState, commit_control
from lowwater.errors import ConfigError
from lowwater.records import Control, CopyRequest, Exclusion, Skip, Wanted
from lowwater.schemas import open_store
from lowwater_fleet.console import out
from lowwater_fleet.services import get_json

source_app = typer.Typer(help="Sources: list, status, check, copy, reset, pause, resume, stop.", no_args_is_help=True)
thread_app = typer.Typer(help="Threads: exclude one from the watermark, include it again.", no_args_is_help=True)
group_app = typer.Typer(help="Groups: status, skip one transaction, try again.", no_args_is_help=True)

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="the fleet's YAML file", envvar="LOWWATER_CONFIG")
]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON")]
ReasonOption = Annotated[str, typer.Option("--reason", "-r", help="why; it is recorded")]

#: where `lowwater up` and `lowwater demo` leave their config
DEFAULT_CONFIGS = (Path(".lowwater/up/fleet.yaml"), Path(".lowwater/demo/fleet.yaml"))


def find(path: Path | None) -> Path:
    if path is None:
        path = next((default for default in DEFAULT_CONFIGS if default.exists()), None)
    if path is None:
        raise ConfigError("no config", hint="give --config, or set LOWWATER_CONFIG, or run `lowwater up` first")
    return path


def load(path: Path | None) -> Settings:
    return config.load(find(path))


def say(settings: Settings, kind: str, name: str, change: Callable[[Control], Control]) -> ControlState:
    """Write a word to the control topic; returns once it counts."""
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    admin.ensure(topics.shared_topics())
    codec = open_store(settings).record_codec()
    return commit_control(settings.kafka, codec, kind, name, change)


def _print(data: Any, as_json: bool) -> None:
    out.print_json(json.dumps(data, default=str)) if as_json else out.print(data)


def _want(settings: Settings, name: str, wanted: Wanted, reason: str, as_json: bool) -> None:
    settings.source(name)
    state = say(settings, "source", name, lambda c: replace(c, wanted=wanted, reason=reason))
    _print({"source": name, "wanted": wanted.value, "version": state.version}, as_json)


@source_app.command("list")
def list_sources(config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """The configured sources and what each is doing."""
    settings = load(config_file)
    rows = []
    for name, source in sorted(settings.sources.items()):
        status = get_json(source.http.port, "/status") or {"state": "not reachable"}
        rows.append({"source": name, "kind": source.kind, "state": status["state"]})
    if as_json:
        _print(rows, True)
        return
    table = Table("source", "kind", "state")
    for row in rows:
        table.add_row(*row.values())
    out.print(table)


@source_app.command("status")
def source_status(name: str, config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """One source: threads, marks, what is held, the error if it has one."""
    settings = load(config_file)
    _print(get_json(settings.source(name).http.port, "/status") or {"state": "not reachable"}, as_json)


@source_app.command()
def check(name: str, config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Ask the live database for all that capture needs; each thing that it lacks with its fix."""
    path = find(config_file)
    config.load(path).source(name)
    # by the extractor's own program: drivers are its own
    command = [sys.executable, "-m", "lowwater_extractor", "--check", "--config", str(path), "--source", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = json.loads(done.stdout) if done.stdout else []
    if as_json:
        _print(found, True)
    else:
        table = Table("", "", "what", "fix")
        for one in found:
            mark = "[green]✓[/]" if one["is_good"] else "[red]✗[/]"
            table.add_row(mark, one["name"], escape(one["what"]), "" if one["is_good"] else escape(one["fix"]))
        out.print(table)
    if done.returncode:
        raise typer.Exit(1)


@source_app.command("reset")
def reset_source(
    name: str,
    reason: ReasonOption,
    is_sure: Annotated[bool, typer.Option("--yes", help="yes, what the log has in between is not captured")] = False,
    config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget where a source was read to: capture begins anew, and its tables are copied anew."""
    path = find(config_file)
    settings = config.load(path)
    settings.source(name)
    if not is_sure:
        raise ConfigError(
            f"the position of {name} would be forgotten",
            hint="changes between it and now come only as far as new copies have them; say --yes if that is meant",
        )
    command = [sys.executable, "-m", "lowwater_extractor", "--reset", "--config", str(path), "--source", name]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise typer.Exit(1)
    _print(done.stdout.strip(), as_json)
    # one that has stopped for an error waits for a word
    _want(settings, name, Wanted.RUNNING, reason, as_json)


@source_app.command()
def copy(
    name: str, table: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Copy a table anew, `schema.table`, while its stream goes on: a full refresh. It replaces the copy before."""
    settings = load(config_file)
    settings.source(name)
    word = CopyRequest(table, uuid.uuid4().hex[:12], reason)

    def change(control: Control) -> Control:
        kept = tuple(c for c in control.copies if c.table != table)
        return replace(control, copies=(*kept, word), reason=reason)

    state = say(settings, "source", name, change)
    _print({"source": name, "copy": table, "request": word.request, "version": state.version}, as_json)


@source_app.command()
def pause(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Stop reading the source's log; its group waits for it."""
    _want(load(config_file), name, Wanted.PAUSED, reason, as_json)


@source_app.command()
def resume(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Read on, also after an error that has been mended."""
    _want(load(config_file), name, Wanted.RUNNING, reason, as_json)


@source_app.command()
def stop(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """End the extractor after its current batch."""
    _want(load(config_file), name, Wanted.STOPPED, reason, as_json)


def _group_of(settings: Settings, source: str) -> str:
    for group, found in settings.groups.items():
        if source in found.sources:
            return group
    raise ConfigError(f"no group has the source {source!r}", hint="add it to a group's `sources`")


@thread_app.command()
def exclude(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Take a thread out of the watermark: the others no longer wait for it. What it commits below is late."""
    settings = load(config_file)
    group = _group_of(settings, source)
    word = Exclusion(source, thread, reason)

    def change(control: Control) -> Control:
        kept = tuple(e for e in control.exclusions if (e.source, e.thread) != (source, thread))
        return replace(control, exclusions=(*kept, word), reason=reason)

    state = say(settings, "group", group, change)
    _print({"group": group, "excluded": f"{source}/{thread}", "version": state.version}, as_json)


@thread_app.command()
def include(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Put a thread back into the watermark."""
    settings = load(config_file)
    group = _group_of(settings, source)

    def change(control: Control) -> Control:
        kept = tuple(e for e in control.exclusions if (e.source, e.thread) != (source, thread))
        return replace(control, exclusions=kept, reason=reason)

    state = say(settings, "group", group, change)
    _print({"group": group, "included": f"{source}/{thread}", "version": state.version}, as_json)


@group_app.command("status")
def group_status(group: str, config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """The watermark, who holds it and since when, what waits."""
    settings = load(config_file)
    _print(get_json(settings.group(group).http.port, "/status") or {"state": "not reachable"}, as_json)


@group_app.command()
def skip(
    source: str, thread: int, txid: str, reason: ReasonOption, config_file: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:  # fmt: skip
    """Pass over one named transaction; `Skipped` takes its place in the order."""
    settings = load(config_file)
    group = _group_of(settings, source)
    word = Skip(source, thread, txid, reason)
    state = say(settings, "group", group, lambda c: replace(c, skips=(*c.skips, word), reason=reason))
    _print({"group": group, "skips": f"{source}/{thread}/{txid}", "version": state.version}, as_json)


@group_app.command()
def retry(group: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Something was mended: read stopped sources again."""
    settings = load(config_file)
    settings.group(group)
    state = say(settings, "group", group, lambda c: replace(c, reason=reason))
    _print({"group": group, "version": state.version}, as_json)
