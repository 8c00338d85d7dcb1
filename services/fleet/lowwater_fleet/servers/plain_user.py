"""As whom an embedded database server runs: they all refuse to run as root."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lowwater.errors import ConfigError

#: whom the server runs as when we are root
PLAIN_USER = "nobody"


@functools.cache
def plain_user() -> pwd.struct_passwd | None:
    """None when we are not root: the server then runs as ourselves."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(PLAIN_USER)
    except KeyError:
        raise ConfigError(
            f"database servers refuse to run as root, and there is no user {PLAIN_USER!r}", hint="run as a plain user"
        ) from None
    if shutil.which("setpriv") is None:
        raise ConfigError(
            "database servers refuse to run as root, and there is no setpriv to become another user",
            hint="install util-linux, or run as a plain user",
        )
    return user


def as_plain_user(command: Sequence[str]) -> list[str]:
    """setpriv becomes the command, under the same pid: what started it finds it by that pid."""
    user = plain_user()
    if user is None:
        return list(command)
    # Not in our own working directory, which may be closed to that user: it would not start.
    become = ["env", "--chdir=/", "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [*become, *command]


def is_reachable(path: Path) -> bool:
    """Whether the server's user may enter this directory, or run this program.

    Every directory above counts, so we ask as that user instead of computing it.
    """
    return subprocess.run(as_plain_user(["test", "-x", str(path)]), check=False).returncode == 0


def give_to_plain_user(path: Path) -> None:
    user = plain_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
