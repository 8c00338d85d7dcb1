"""Directories for what memory has no room for: each has one owner, and goes when its owner is gone.

Two processes with one name do exist: one that was taken for dead and wakes up writes on. So a directory belongs to one
session of one process, which holds a lock in it. The kernel ends the lock with its process: a directory whose lock is
free is nobody's, and whoever makes the next one removes it.
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
#: before it has its lock a directory has another name: nobody takes it for one that was left behind
_UNFINISHED = ".making-"


class Scratch:
    """`path` is this owner's alone, from the making to `close`."""

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
        """With all that is in it. May be called again."""
        if self._lock >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1


def _remove_if_left(root: Path) -> None:
    try:
        lock = os.open(root / _LOCK, os.O_RDWR)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        # just being removed by another, or none of ours
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
    """A disk that is full, gone or read-only is an error with a name, not the end of the process."""
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"{path}: {error.strerror or error}",
            hint="make room on that disk, or give the service another directory; nothing is lost, it is tried again",
        ) from error


def damaged(path: Path, what: str) -> DiskError:
    """What came back from disk is not what was written."""
    return DiskError(
        f"{path}: {what}",
        hint="nothing of it was published; it is read again from its source. Is the disk good? Who else writes there?",
    )
