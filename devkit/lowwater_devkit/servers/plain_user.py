"""The user of an embedded database server: servers refuse to run as root."""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lowwater.errors import ConfigError

#: the server's user if this process runs as root
PLAIN_USER = "nobody"


@functools.cache
def plain_user() -> pwd.struct_passwd | None:
    """The server's user; None if this process is not root: the server then runs as the same user."""
    if os.geteuid() != 0:
        return None
    try:
        user = pwd.getpwnam(PLAIN_USER)
    except KeyError:
        raise ConfigError(
            f"database servers refuse to run as root, and there is no user {PLAIN_USER!r}", hint="do not run as root"
        ) from None
    if shutil.which("setpriv") is None:
        raise ConfigError(
            "database servers refuse to run as root, and there is no setpriv to become another user",
            hint="install util-linux, or do not run as root",
        )
    return user


def as_plain_user(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` as the server's user. setpriv executes it under the same pid."""
    user = plain_user()
    if user is None:
        return list(command)
    # Not in the current directory: that user may have no access to it, and the server would not start.
    become = ["env", "--chdir=/", "setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
    return [*become, *command]


def is_reachable(path: Path) -> bool:
    """Whether the server's user may enter this directory, or run this program.

    It depends on all parent directories, so it is tested as that user.
    """
    return subprocess.run(as_plain_user(["test", "-x", str(path)]), check=False).returncode == 0


def give_to_plain_user(path: Path) -> None:
    user = plain_user()
    if user is not None:
        os.chown(path, user.pw_uid, user.pw_gid)
