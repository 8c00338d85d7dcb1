"""Operator commands: pause and resume, copy, exclude a thread, skip a transaction. Each one is recorded."""

from __future__ import annotations

import uuid
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from lowwater.control import commands as words
from lowwater.control.commands import GROUP, SOURCE, Change
from lowwater.control.desired_state import WantedFleet, wanted_fleet
from lowwater.control.extractor_rpc import ask
from lowwater.control.fold import ControlFold, ControlState, commit_control
from lowwater.errors import ConfigError
from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.records.codec import RecordCodec
from lowwater.records.schemas import open_store
from lowwater.records.types import Control, CopyRequest, Exclusion, Skip, Wanted
from lowwater.runtime.config import Settings
from lowwater_fleet.cli.console import out, show
from lowwater_fleet.cli.contract import EXIT_BAD, AsJson, ConfigOption, ReasonOption, load, say_json

source_app = typer.Typer(
    help="Sources: list, add, check, pause, resume, restart, stop, copy, reset, remove.", no_args_is_help=True
)
thread_app = typer.Typer(help="Threads: exclude one from the watermark, include it again.", no_args_is_help=True)
group_app = typer.Typer(help="Groups: status, pause, resume, skip one transaction, retry.", no_args_is_help=True)


def codec_of(settings: Settings) -> RecordCodec:
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    admin.ensure(topics.shared_topics())
    return open_store(settings).record_codec()


def say(settings: Settings, kind: str, name: str, change: Change) -> ControlState:
    """Write a command to the control topic. Returns when it is in effect; raises ControlConflictError on conflicts."""
    return commit_control(settings.kafka, codec_of(settings), kind, name, change)


def fleet_of(settings: Settings) -> WantedFleet:
    """The sources and groups of the config, with the changes of the control topic."""
    codec, fold = codec_of(settings), ControlFold()
    for message in read_to_end(settings.kafka, topics.CONTROL)[0]:
        fold.apply(codec.decode(message.value() or b"", Control))
    return wanted_fleet(settings, fold)


def known(fleet: WantedFleet, kind: str, name: str) -> None:
    there = fleet.sources if kind == SOURCE else fleet.groups
    if name not in there:
        raise ConfigError(f"there is no {kind} {name!r}", hint=f"known: {', '.join(there) or 'none'}")


def group_of(fleet: WantedFleet, source: str) -> str:
    known(fleet, SOURCE, source)
    group = fleet.group_of(source)
    if group is None:
        raise ConfigError(
            f"source {source!r} is not in a group", hint="set its `group`, or add it to a group's `sources`"
        )
    return group


def tell(data: dict[str, Any], as_json: bool) -> None:
    if as_json:
        say_json(data)
    else:
        out.print(", ".join(f"{name} {value}" for name, value in data.items()), markup=False)


def _want(settings: Settings, kind: str, name: str, change: Change, as_json: bool) -> None:
    known(fleet_of(settings), kind, name)
    state = say(settings, kind, name, change)
    tell({kind: name, "wanted": state.control.wanted.value, "version": state.version}, as_json)


# -- sources ---------------------------------------------------------------------------------------------


@source_app.command()
def check(name: str, config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Check the database for everything that capture needs; each failed check has a fix."""
    fleet = fleet_of(load(config_file))
    known(fleet, SOURCE, name)
    spec = fleet.sources[name]
    found = ask({"do": "check", "name": name, "kind": spec.kind, "config": spec.config})["checks"]
    if as_json:
        say_json(found)
    else:
        print_checks(found)
    if not all(one["is_good"] for one in found):
        raise typer.Exit(EXIT_BAD)


def print_checks(found: list[dict[str, Any]]) -> None:
    table = Table("", "", "what", "fix")
    for one in found:
        mark = "[green]✓[/]" if one["is_good"] else "[red]✗[/]"
        table.add_row(mark, one["name"], escape(one["what"]), "" if one["is_good"] else escape(one["fix"]))
    show(table)


@source_app.command("reset")
def reset_source(
    name: str,
    reason: ReasonOption,
    is_sure: Annotated[
        bool, typer.Option("--yes", help="confirm that changes since the position are not captured from the log")
    ] = False,
    config_file: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete a source's position: capture starts from scratch, and its tables are copied again."""
    settings = load(config_file)
    fleet = fleet_of(settings)
    known(fleet, SOURCE, name)
    if not is_sure:
        raise ConfigError(
            f"the position of {name} would be deleted",
            hint="changes since then are lost, except rows that the new copies contain; confirm with --yes",
        )
    done = ask({"do": "reset", "settings": fleet.settings.model_dump(mode="json"), "name": name})["done"]
    # an extractor that stopped after an error waits for a command
    state = say(settings, SOURCE, name, words.want(Wanted.RUNNING, reason))
    tell({"source": name, "done": done, "version": state.version}, as_json)


@source_app.command()
def copy(
    name: str, table: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="cancel the current copy of the table")] = False,
) -> None:  # fmt: skip
    """Copy a table (`schema.table`) again while changes are captured. The new copy replaces the old one."""
    settings = load(config_file)
    known(fleet_of(settings), SOURCE, name)
    word = CopyRequest(table, uuid.uuid4().hex[:12], reason, cancel)
    state = say(settings, SOURCE, name, words.copy(word))
    tell(
        {"source": name, "cancelled" if cancel else "copy": table, "request": word.request, "version": state.version},
        as_json,
    )


@source_app.command()
def pause(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Stop reading the source's log. Its group waits for it."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.PAUSED, reason), as_json)


@source_app.command()
def resume(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Continue reading the source's log, also after an error was fixed."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.RUNNING, reason), as_json)


@source_app.command()
def stop(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Stop the extractor after the current batch."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.STOPPED, reason), as_json)


@source_app.command()
def restart(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Restart its session: the position is read from Kafka again."""
    _want(load(config_file), SOURCE, name, words.restart(uuid.uuid4().hex[:12], reason), as_json)


@source_app.command()
def remove(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Remove it from the fleet. Its topics are retained; if it is added again, it continues where it was."""
    _want(load(config_file), SOURCE, name, words.remove(reason), as_json)


# -- threads ---------------------------------------------------------------------------------------------


@thread_app.command()
def exclude(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Exclude a thread from the watermark: the group no longer waits for it. Later commits below it are late."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    state = say(settings, GROUP, group, words.exclude(Exclusion(source, thread, reason)))
    tell({"group": group, "excluded": f"{source}/{thread}", "version": state.version}, as_json)


@thread_app.command()
def include(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Include a thread in the watermark again."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    state = say(settings, GROUP, group, words.include(source, thread, reason))
    tell({"group": group, "included": f"{source}/{thread}", "version": state.version}, as_json)


# -- groups ----------------------------------------------------------------------------------------------


@group_app.command("pause")
def pause_group(
    name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Stop releasing transactions until the group is resumed."""
    _want(load(config_file), GROUP, name, words.want(Wanted.PAUSED, reason), as_json)


@group_app.command("resume")
def resume_group(
    name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Continue releasing transactions."""
    _want(load(config_file), GROUP, name, words.want(Wanted.RUNNING, reason), as_json)


@group_app.command()
def skip(
    source: str, thread: int, txid: str, reason: ReasonOption, config_file: ConfigOption = None,
    as_json: AsJson = False,
    position: Annotated[str, typer.Option(help="order of its commit, as the error shows it: 17.3")] = "",
) -> None:  # fmt: skip
    """Skip one transaction. A `Skipped` record is released in its place."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    word = Skip(source, thread, txid, reason, uuid.uuid4().hex[:12], position)
    state = say(settings, GROUP, group, words.skip(word))
    tell({"group": group, "skips": f"{source}/{thread}/{txid}", "version": state.version}, as_json)


@group_app.command()
def retry(group: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Read stopped sources again, after their error was fixed."""
    _want(load(config_file), GROUP, group, words.retry(reason), as_json)
