"""What the command line prints: results to stdout, everything said on the way to stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, RenderableType

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

#: of a table that goes into a file or a pipe
_WIDTH = 10_000


def show(what: RenderableType) -> None:
    """A result: on a terminal as wide as that is; what goes into a file or a pipe is not cut."""
    (out if out.is_terminal else Console(file=out.file, width=_WIDTH, highlight=False)).print(what)


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Gives a `say`: on a terminal one moving line, elsewhere one line for each new message."""
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
