"""The command line `lowwater`.

A new group of commands is a module with a `typer.Typer`, added here with `app.add_typer`; a single command is
a function, added with `app.command()`. Another distribution adds commands by entry points of the group
`lowwater.commands`. Common options and exit codes are in `contract.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from lowwater import __version__
from lowwater.errors import ConfigError, LowwaterError
from lowwater.runtime.plugins import COMMANDS, load_plugin, plugins
from lowwater_fleet.cli import kafka as kafka_cli
from lowwater_fleet.cli import lake as lake_cli
from lowwater_fleet.cli import operate as operate_cli
from lowwater_fleet.cli import source as source_cli
from lowwater_fleet.cli.console import err
from lowwater_fleet.cli.contract import EXIT_INTERRUPTED, exit_code
from lowwater_fleet.cli.doctor_command import doctor
from lowwater_fleet.cli.kubernetes import run_kubernetes
from lowwater_fleet.cli.logs import logs
from lowwater_fleet.cli.operate import copy
from lowwater_fleet.cli.status import status, top
from lowwater_fleet.cli.up import down, up


def _add_plugins() -> None:
    """Add the commands of other distributions. One that cannot be loaded fails alone; the others remain usable."""
    try:
        names = sorted(plugins(COMMANDS))
    except ConfigError as error:
        err.print(f"warning: {error.what}: {error.hint}", style="yellow", markup=False)
        return
    for name in names:
        try:
            app.command(name)(load_plugin(COMMANDS, name))
        except ConfigError as error:
            # whatever options the command would have
            options = {"allow_extra_args": True, "ignore_unknown_options": True}
            app.command(name, context_settings=options, help=f"Cannot be loaded: {error.what}")(_raising(error))


def _raising(error: ConfigError) -> Callable[[typer.Context], None]:
    def fail(context: typer.Context) -> None:
        raise error

    return fail


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
app.command()(copy)
app.add_typer(source_cli.app, name="source")
app.add_typer(operate_cli.thread_app, name="thread")
app.add_typer(operate_cli.group_app, name="group")
app.add_typer(lake_cli.app, name="lake")
app.add_typer(kafka_cli.app, name="kafka")
app.command("run-kubernetes")(run_kubernetes)
_add_plugins()


def main() -> None:
    """Run one command. A LowwaterError is printed as one line and its hint, without a traceback."""
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
