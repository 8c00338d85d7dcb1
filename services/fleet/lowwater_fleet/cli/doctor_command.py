"""`lowwater doctor` as a command."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer
from rich.table import Table

from lowwater_fleet.cli.console import out
from lowwater_fleet.cli.contract import AsJson
from lowwater_fleet.cli.doctor import Finding, examine
from lowwater_fleet.cli.kafka import DIRECTORY_DEFAULT, Directory


def doctor(directory: Directory = DIRECTORY_DEFAULT, as_json: AsJson = False) -> None:
    """Check this machine: what is installed, what is missing, and how to fix it."""
    findings = examine(directory)
    if as_json:
        typer.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        print_findings(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def print_findings(findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row("[green]ok[/]" if finding.ok else "[red]FAIL[/]", finding.name, finding.found)
        if finding.fix:
            table.add_row("", "", f"[yellow]→ {finding.fix}[/]")
    out.print(table)
