"""Port and home of an embedded database server: chosen once, stored in its directory, the same after restarts.

`home`, the parent of its data, is usually the directory itself. A server refuses to run as root, so for root it runs as
`nobody`, who needs access to all parent directories of its data. If `nobody` cannot access the directory (pytest's,
below /tmp/pytest-of-root, is 0700), its home is a new directory below /tmp.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lowwater.errors import ConfigError
from lowwater_devkit.servers.plain_user import is_reachable
from lowwater_fleet.runner.ports import free_port

HOMES = Path("/tmp")  # not TMPDIR, which may be the private directory of one user


@dataclass(frozen=True)
class _Identity:
    port: int
    home: str


class ServerHome:
    """`name`: the server's name in file names. `port`: 0 is the stored one, or a free one the first time."""

    def __init__(self, directory: Path, name: str, port: int, is_running: Callable[[], bool]) -> None:
        self.directory = directory
        self._name = name
        self._wanted_port = port
        self._is_running = is_running
        self._chosen_port: int | None = None
        self._file = directory / f"{name}.json"

    @property
    def port(self) -> int:
        return self._identity().port

    @property
    def path(self) -> Path:
        return Path(self._identity().home)

    @property
    def is_kept(self) -> bool:
        return self._file.exists()

    def _identity(self) -> _Identity:
        """The identity stored in the directory, or the one that the first start will store."""
        if self._file.exists():
            kept = _Identity(**json.loads(self._file.read_text()))
            if self._wanted_port in (0, kept.port) or self._is_running():
                return kept
            return _Identity(self._wanted_port, kept.home)
        if self._chosen_port is None:
            self._chosen_port = self._wanted_port or free_port()
        return _Identity(self._chosen_port, str(self.directory))

    def keep(self) -> None:
        identity = self._identity()
        if not self._file.exists() and not is_reachable(self.directory):
            identity = _Identity(identity.port, str(self._new()))
        unfinished = self._file.with_suffix(".tmp")
        unfinished.write_text(json.dumps(vars(identity)))
        unfinished.replace(self._file)

    def _new(self) -> Path:
        home = Path(tempfile.mkdtemp(prefix=f"lowwater-{self._name}-", dir=HOMES))
        home.chmod(0o755)  # the data inside is 0700
        if not is_reachable(home):
            home.rmdir()
            raise ConfigError(f"the user of the server cannot enter {HOMES}", hint=f"chmod o+x {HOMES}")
        return home

    def remove(self, *ours: str) -> None:
        """Delete the home below /tmp if there is one, and the entries `ours` of the directory."""
        if not self.is_kept:
            return
        if self.path != self.directory:
            shutil.rmtree(self.path)
        for name in ours:
            if (self.directory / name).exists():
                shutil.rmtree(self.directory / name)
        self._file.unlink()

    @contextmanager
    def one_start_at_a_time(self) -> Iterator[None]:
        """Two concurrent commands must not start two servers. The kernel releases the lock if its holder dies."""
        with (self.directory / "start.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
