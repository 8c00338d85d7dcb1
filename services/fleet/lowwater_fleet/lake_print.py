"""Values of a lake for people and for JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lowwater_fleet.console import out

_CELL_MAX = 60
_WIDTH = 10_000


def plain(value: Any) -> Any:
    """As JSON has it: numbers that JSON would round, times and bytes are text."""
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        shown = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return shown.isoformat() + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


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
    # what goes into a file or a pipe is not cut to a screen's width
    (out if out.is_terminal else Console(file=out.file, width=_WIDTH, highlight=False)).print(table)
