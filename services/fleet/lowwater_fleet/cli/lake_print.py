"""Prints values of a lake as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from lowwater.codec.json_values import plain
from lowwater_fleet.cli.console import show

_CELL_MAX = 60


def instant(us: int) -> str:
    return str(plain(datetime.fromtimestamp(us // 1_000_000, UTC).replace(microsecond=us % 1_000_000)))


def print_json(data: Any) -> None:
    typer.echo(json.dumps(plain(data), indent=1, ensure_ascii=False))


def _cell(value: Any) -> Text:
    value = plain(value)
    if value is None:
        return Text("null", style="dim")
    shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Text(shown if len(shown) <= _CELL_MAX else f"{shown[: _CELL_MAX - 1]}…")


def print_rows(names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    table = Table()
    for name in names:
        table.add_column(Text(name), no_wrap=True)
    for row in rows:
        table.add_row(*(_cell(row[name]) for name in names))
    show(table)
