"""Temporary directories for data that does not fit into memory; each has one owner.

Two processes of the same service may run at once: a suspended process that was taken for dead may resume and continue
to write. So each session of a process has a directory of its own and holds a lock in it. The kernel releases the lock
when the process ends. Directories whose lock is free are removed when the next one is created.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lowwater.errors import DiskError

_LOCK = "lock"
#: prefix of a directory that is not locked yet, so that another process does not remove it
_UNFINISHED = ".making-"


class Scratch:
    """A directory, `path`, that exists until `close`. Creating it removes directories that dead processes left."""

    def __init__(self, parent: Path, prefix: str) -> None:
        with disk_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
            for left in parent.glob(f"{prefix}-*"):
                _remove_if_left(left)
            made = Path(tempfile.mkdtemp(prefix=f"{_UNFINISHED}{prefix}-", dir=parent))
            self._lock = os.open(made / _LOCK, os.O_RDWR | os.O_CREAT)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            self.path = made.rename(parent / made.name.removeprefix(_UNFINISHED))

    def close(self) -> None:
        """Removes the directory and its content. May be called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_if_left(root: Path) -> None:
    try:
        lock = os.open(root / _LOCK, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # another process is removing it, or it is not a scratch directory
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(root, ignore_errors=True)
    except BlockingIOError:
        return
    finally:
        os.close(lock)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Raises OSError, such as of a full or read-only disk, as DiskError: the service retries after it."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{path}: {error.strerror or error}",
            hint="make room on that disk, or give the service another directory; nothing is lost, it is retried",
        ) from error


def damaged(path: Path, what: str) -> DiskError:
    """The error for a file whose content is not the one that was written."""
    return DiskError(
        f"{path}: {what}",
        hint="nothing of it was published; it is read again from its source. Check the disk, and whether other "
        "processes write there",
    )
