"""`lowwater status` and `lowwater top`: the status of the fleet, once and live."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lowwater_fleet.cli.console import out, show
from lowwater_fleet.cli.contract import EXIT_BAD, AsJson, ConfigOption, load, say_json
from lowwater_fleet.cli.fleet_view import problems, viewing

_STYLES = {
    "running": "green",
    "paused": "yellow",
    "starting": "cyan",
    "failed": "red",
    "stalled": "red",
    "unreachable": "red",
}


def status(config_file: ConfigOption = None, as_json: AsJson = False) -> None:
    """The current and desired state of all sources and groups. The exit code is 1 if something is wrong."""
    with viewing(load(config_file)) as view:
        overview = view.overview()
    wrong = problems(overview)
    if as_json:
        say_json(overview)
    else:
        show(draw(overview))
        for line in wrong:
            out.print(line, style="red", markup=False)
    if wrong:
        raise typer.Exit(EXIT_BAD)


def top(
    config_file: ConfigOption = None,
    seconds: Annotated[float, typer.Option("--interval", help="seconds between updates", min=0.2)] = 1.0,
    count: Annotated[int, typer.Option("--count", "-n", help="number of updates; 0: until Ctrl-C", min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """The same as `status`, live. With --json, one document per line."""
    live = Live(console=out, auto_refresh=False) if out.is_terminal and not as_json else None
    shown = 0
    with viewing(load(config_file)) as view:
        if live is not None:
            live.start()
        try:
            while True:
                overview = view.overview()
                if as_json:
                    typer.echo(json.dumps(overview, separators=(",", ":"), default=str))
                elif live is None:
                    show(draw(overview))
                else:
                    live.update(draw(overview), refresh=True)
                shown += 1
                if shown == count:
                    return
                view.wait(seconds)
        finally:
            if live is not None:
                live.stop()


def draw(overview: dict[str, Any]) -> Group:
    return Group(_sources(overview), _groups(overview))


def _state(state: str, wanted: str) -> Text:
    text = state if wanted in (state, "running") else f"{state}, desired {wanted}"
    return Text(text, style=_STYLES.get(state, "dim"))


def _sources(overview: dict[str, Any]) -> Table:
    table = Table("source", "kind", "group", "state", "thread", "published", "mark", "tx/s", "")
    for source in overview["sources"].values():
        head = [source["name"], source["kind"], source["group"] or "", _state(source["state"], source["wanted"])]
        rate = f"{source['per_second']:,.0f}"
        for number, thread in enumerate(source["threads"] or [{}]):
            own = head if number == 0 else ["", "", "", ""]
            places = [str(thread.get(name) or "") for name in ("thread", "published", "mark")]
            table.add_row(*own, *places, rate if number == 0 else "", _said(source, thread))
    return table


def _said(source: dict[str, Any], thread: dict[str, Any]) -> Text:
    if source["error"]:
        hint = source["error"].get("hint")
        return Text(source["error"]["what"] + (f" → {hint}" if hint else ""), style="red")
    if thread.get("is_excluded"):
        return Text("excluded", style="yellow")
    if thread.get("holds_seconds") is not None:
        return Text(f"holds the watermark, {thread['holds_seconds']:.0f} s", style="yellow")
    copies = source["copies"]
    if copies.get("tables", 0) > copies.get("copied", 0):
        return Text(f"{copies['copied']} of {copies['tables']} tables copied")
    return Text("")


def _groups(overview: dict[str, Any]) -> Table:
    table = Table("group", "state", "gsn", "released/s", "waiting", "lag", "landed", "behind", "rows/s", "")
    for group in overview["groups"].values():
        landing = group["landing"] or {}
        gsn, rows = landing.get("gsn", 0), landing.get("rows_per_second", 0)
        landed = [f"{gsn:,}", f"{max(0, group['gsn'] - gsn):,}", f"{rows:,}"]
        holder = group["holder"]
        said = f"held by {holder['source']}'s thread {holder['thread']}, {holder['seconds']:.0f} s" if holder else ""
        table.add_row(
            group["name"], _state(group["state"], group["wanted"]), f"{group['gsn']:,}", f"{group['per_second']:,.0f}",
            f"{group['waiting']:,}", f"{group['lag_seconds']:.1f} s", *(landed if landing else ["", "", ""]), said,
        )  # fmt: skip
    return table
