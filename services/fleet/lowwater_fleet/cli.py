"""The command line `lowwater`.

A new group of commands is a module with a `typer.Typer`, added here with `app.add_typer`; a single command is
a function, added with `app.command()`. What all have in common is in `contract.py`.
"""

from __future__ import annotations

import sys

import typer

from lowwater import __version__
from lowwater.errors import LowwaterError
from lowwater_fleet import kafka_cli, lake_cli, operate_cli, source_cli
from lowwater_fleet.console import err
from lowwater_fleet.contract import EXIT_INTERRUPTED, exit_code
from lowwater_fleet.demo import demo
from lowwater_fleet.doctor_cli import doctor
from lowwater_fleet.kubernetes_cli import run_kubernetes
from lowwater_fleet.logs_cli import logs
from lowwater_fleet.operate_cli import copy
from lowwater_fleet.status_cli import status, top
from lowwater_fleet.up import down, up

app = typer.Typer(
    help=f"lowwater {__version__}: change data capture that keeps transactions whole.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(down)
app.command()(status)
app.command()(top)
app.command()(logs)
app.command()(doctor)
app.command()(demo)
app.command()(copy)
app.add_typer(source_cli.app, name="source")
app.add_typer(operate_cli.thread_app, name="thread")
app.add_typer(operate_cli.group_app, name="group")
app.add_typer(lake_cli.app, name="lake")
app.add_typer(kafka_cli.app, name="kafka")
app.command("run-kubernetes")(run_kubernetes)


def main() -> None:
    """Runs one command; an error of ours is one line and its hint, never a traceback."""
    try:
        app()
    except LowwaterError as error:
        err.print(f"error: {error.what}", style="red", markup=False)
        if error.hint:
            err.print(f"  → {error.hint}", style="yellow", markup=False)
        sys.exit(exit_code(error))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
