"""Output of the command line: results to stdout, progress and errors to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

#: width of a table written to a file or a pipe
_WIDTH = 10_000


def show(what: RenderableType) -> None:
    """Print a result, as wide as the terminal; output to a file or a pipe is not truncated."""
    (out if out.is_terminal else Console(file=out.file, width=_WIDTH, highlight=False)).print(what)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yields a function to report progress: on a terminal as one status line, elsewhere one line for each message."""
    if err.is_terminal:
        with err.status("") as status:
            yield lambda message: status.update(message)
        return
    last = ""

    def say(message: str) -> None:
        nonlocal last
        if message != last:
            err.print(message, markup=False)
            last = message

    yield say
