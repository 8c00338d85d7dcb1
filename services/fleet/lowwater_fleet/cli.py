"""The command line `lowwater`.

A new group of commands is a module with a `typer.Typer`, added here with `app.add_typer`; a single command is
a function, added with `app.command()`.
"""

from __future__ import annotations

import sys

import typer

from lowwater.errors import LowwaterError
from lowwater_fleet import kafka_cli, lake_cli, operate_cli
from lowwater_fleet.console import err
from lowwater_fleet.demo import demo
from lowwater_fleet.doctor_cli import doctor
from lowwater_fleet.up import up

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells count

app = typer.Typer(
    help="lowwater: change data capture that keeps transactions whole.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(kafka_cli.app, name="kafka")
app.add_typer(operate_cli.source_app, name="source")
app.add_typer(operate_cli.thread_app, name="thread")
app.add_typer(operate_cli.group_app, name="group")
app.add_typer(lake_cli.app, name="lake")
app.command()(doctor)
app.command()(demo)
app.command()(up)


def main() -> None:
    """Runs one command; an error of ours is one line and its hint, never a traceback."""
    try:
        app()
    except LowwaterError as error:
        err.print(f"error: {error.what}", style="red", markup=False)
        if error.hint:
            err.print(f"  → {error.hint}", style="yellow", markup=False)
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
