"""An operator's words: pause and resume, copy, exclude a thread, skip one transaction. Each is recorded."""

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
group_app = typer.Typer(help="Groups: status, pause, resume, skip one transaction, try again.", no_args_is_help=True)


def codec_of(settings: Settings) -> RecordCodec:
    admin = Admin(settings.kafka)
    admin.wait_for_broker(10)
    admin.ensure(topics.shared_topics())
    return open_store(settings).record_codec()


def say(settings: Settings, kind: str, name: str, change: Change) -> ControlState:
    """Write a word to the control topic; returns once it counts."""
    return commit_control(settings.kafka, codec_of(settings), kind, name, change)


def fleet_of(settings: Settings) -> WantedFleet:
    """The config's sources and groups, and those that were added since."""
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
            f"no group has the source {source!r}", hint="set its `group`, or add it to a group's `sources`"
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
    """Ask the live database for all that capture needs; each thing that it lacks with its fix."""
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
    is_sure: Annotated[bool, typer.Option("--yes", help="yes, what the log has in between is not captured")] = False,
    config_file: ConfigOption = None,
    as_json: AsJson = False,
) -> None:
    """Forget where a source was read to: capture begins anew, and its tables are copied anew."""
    settings = load(config_file)
    fleet = fleet_of(settings)
    known(fleet, SOURCE, name)
    if not is_sure:
        raise ConfigError(
            f"the position of {name} would be forgotten",
            hint="changes between it and now come only as far as new copies have them; say --yes if that is meant",
        )
    done = ask({"do": "reset", "settings": fleet.settings.model_dump(mode="json"), "name": name})["done"]
    # one that has stopped for an error waits for a word
    state = say(settings, SOURCE, name, words.want(Wanted.RUNNING, reason))
    tell({"source": name, "done": done, "version": state.version}, as_json)


@source_app.command()
def copy(
    name: str, table: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="read nothing more of the copy that is under way")] = False,
) -> None:  # fmt: skip
    """Copy a table anew, `schema.table`, while its stream goes on: a full refresh. It replaces the copy before."""
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
    """Stop reading the source's log; its group waits for it."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.PAUSED, reason), as_json)


@source_app.command()
def resume(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Read on, also after an error that has been mended."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.RUNNING, reason), as_json)


@source_app.command()
def stop(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """End the extractor after its current batch."""
    _want(load(config_file), SOURCE, name, words.want(Wanted.STOPPED, reason), as_json)


@source_app.command()
def restart(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Begin its session anew: the position is read again from Kafka."""
    _want(load(config_file), SOURCE, name, words.restart(uuid.uuid4().hex[:12], reason), as_json)


@source_app.command()
def remove(name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Take it out of the fleet. Its topics stay: added again, it goes on where it was."""
    _want(load(config_file), SOURCE, name, words.remove(reason), as_json)


# -- threads ---------------------------------------------------------------------------------------------


@thread_app.command()
def exclude(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Take a thread out of the watermark: the others no longer wait for it. What it commits below is late."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    state = say(settings, GROUP, group, words.exclude(Exclusion(source, thread, reason)))
    tell({"group": group, "excluded": f"{source}/{thread}", "version": state.version}, as_json)


@thread_app.command()
def include(
    source: str, thread: int, reason: ReasonOption, config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Put a thread back into the watermark."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    state = say(settings, GROUP, group, words.include(source, thread, reason))
    tell({"group": group, "included": f"{source}/{thread}", "version": state.version}, as_json)


# -- groups ----------------------------------------------------------------------------------------------


@group_app.command("pause")
def pause_group(
    name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Release nothing until it is resumed."""
    _want(load(config_file), GROUP, name, words.want(Wanted.PAUSED, reason), as_json)


@group_app.command("resume")
def resume_group(
    name: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False
) -> None:
    """Release again."""
    _want(load(config_file), GROUP, name, words.want(Wanted.RUNNING, reason), as_json)


@group_app.command()
def skip(
    source: str, thread: int, txid: str, reason: ReasonOption, config_file: ConfigOption = None,
    as_json: AsJson = False,
    position: Annotated[str, typer.Option(help="where it committed, as the error shows it: 17.3")] = "",
) -> None:  # fmt: skip
    """Pass over one named transaction; `Skipped` takes its place in the order."""
    settings = load(config_file)
    group = group_of(fleet_of(settings), source)
    word = Skip(source, thread, txid, reason, uuid.uuid4().hex[:12], position)
    state = say(settings, GROUP, group, words.skip(word))
    tell({"group": group, "skips": f"{source}/{thread}/{txid}", "version": state.version}, as_json)


@group_app.command()
def retry(group: str, reason: ReasonOption = "", config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """Something was mended: read stopped sources again."""
    _want(load(config_file), GROUP, group, words.retry(reason), as_json)
