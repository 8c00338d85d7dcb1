"""One way into a database file, and errors by our own names.

Turso lets one process have a file, unless all of them open it for several: then they meet in shared memory beside it
(`-tshm`). So writers open it as `lowwater.turso.FEATURES` says, and so is it opened here.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import struct
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import turso
from turso._turso import Busy, Constraint, Corrupt, DatabaseFull, Interrupt, Misuse, NotAdb, Readonly
from turso._turso import Error as EngineError
from turso._turso import PyTursoStatusCode as Status

from lowwater.errors import SourceError, SourceLostError, StartRefusedError
from lowwater.runtime.failpoints import fail_point
from lowwater.turso import FEATURES
from lowwater_extractor.sources.turso.config import TursoConfig

#: what was there and is not seen is asked for by new connections for so long before it is held to be gone
DOUBT_SECONDS = 5.0
_AGAIN_SECONDS = 0.01
#: where a file says how it is written: 2 is a write-ahead log, 255 is MVCC
_VERSIONS = slice(18, 20)
_MVCC = b"\xff\xff"
_SHARED_HINT = f'let every process open it with experimental_features="{FEATURES}" (lowwater.turso.FEATURES)'
#: what another attempt can mend
_STILL_OPEN = "duplicate same-process"
_PASSING = ("locked", "busy", "i/o error", "short read", "schema changed", "interrupt", _STILL_OPEN)

#: what a lock is asked with: type, whence, start, length (0: to the end), process
_FLOCK = struct.Struct("hhqqi4x")

#: table_name, version
_NOTES = "turso_cdc_version"
_NAME = "lowwater"


#: what the engine says by itself, without the driver's names for it
_ENGINE = (EngineError, Busy, Interrupt, Corrupt, NotAdb, DatabaseFull, Misuse, Constraint, Readonly)


class Select:
    """A SELECT, stepped through by hand: the cursor's loop around each step takes a third of all the time."""

    def __init__(self, connection: turso.Connection, statement: str, parameters: Sequence[Any]) -> None:
        self._statement = connection(statement)
        self._statement.bind(tuple(parameters))
        self._is_done = False

    def fetch(self, count: int) -> list[tuple[Any, ...]]:
        """The next rows, at most so many; none at the end."""
        step, row, is_row = self._statement.step, self._statement.row, Status.Row
        rows: list[tuple[Any, ...]] = []
        add = rows.append
        for _ in range(0 if self._is_done else count):
            status = step()
            # nearly always it is that very object
            if status is not is_row and not self._has_row(status):
                break
            add(row())
        return rows

    def _has_row(self, status: Status) -> bool:
        while status == Status.Io:
            self._statement.run_io()
            status = self._statement.step()
        self._is_done = status != Status.Row
        return not self._is_done

    def close(self) -> None:
        # one that is left in its middle is run to its end, and what goes wrong there is nobody's concern: all rows that
        # count were fetched, and what is wrong with the file the next look finds
        with contextlib.suppress(turso.Error, *_ENGINE):
            self._statement.finalize()


class Database:
    """A connection; nothing that it writes is captured."""

    def __init__(self, config: TursoConfig, source: str) -> None:
        self._config = config
        self._source = source
        refuse_mvcc(config.path, source)
        self._file = config.path.open("rb")
        try:
            self.check_shared()
            self.connection = self._connect()
        except BaseException:
            self._file.close()
            raise

    def _connect(self) -> turso.Connection:
        with named_errors(self._source, "open"):
            try:
                connection = self._opened()
            except turso.Error as error:
                if _STILL_OPEN not in str(error):
                    raise
                # of a file that had the name before, and that nobody uses any more
                gc.collect()
                connection = self._opened()
            connection.execute(f"PRAGMA busy_timeout = {int(self._config.busy_seconds * 1000)}").fetchall()
        return connection

    def _opened(self) -> turso.Connection:
        return turso.connect(str(self._config.path), isolation_level=None, experimental_features=FEATURES)

    def connect_anew(self) -> None:
        """While another process opens a file whose writer was killed, the index that all share is made anew, and a
        connection may see pages older than those that it has seen before. One that is opened then does not."""
        time.sleep(_AGAIN_SECONDS)
        fresh = self._connect()
        self.connection.close()
        self.connection = fresh

    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with named_errors(self._source, "read"):
            rows: list[tuple[Any, ...]] = self.connection.execute(statement, tuple(parameters)).fetchall()
        return rows

    def select(self, statement: str, parameters: Sequence[Any] = ()) -> Select:
        """For many rows; under `named_errors`, as is what is fetched from it."""
        return Select(self.connection, statement, parameters)

    def check_shared(self) -> None:
        """Turso itself does not see it when one process shares a file and another has it for itself: each then reads
        and writes past the other. Asked before a file is read, and again before what was read counts."""
        if sys.platform != "linux":
            return
        asked = fcntl.fcntl(self._file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, _, _, pid = _FLOCK.unpack(asked)
        if kind != fcntl.F_UNLCK:
            raise SourceLostError(
                f"process {pid} has the file for itself", source=self._source, thread=1, hint=_SHARED_HINT
            )

    @contextlib.contextmanager
    def view(self) -> Iterator[None]:
        """What is asked inside sees one state of the database."""
        self.ask("BEGIN")
        try:
            yield
        finally:
            self.ask("ROLLBACK")

    def identity(self) -> str:
        """A file has no name of its own that outlives a move: it is given one, where Turso notes its tables of changes.
        A table for it would be a change of schema, which Turso's writers stumble over."""
        asked = f"SELECT version FROM {_NOTES} WHERE table_name = ?"
        if not (found := self.ask(asked, [_NAME])):
            # of two that come at once the first one names it
            self.ask(f"INSERT OR IGNORE INTO {_NOTES} VALUES (?, ?)", [_NAME, uuid.uuid4().hex])
            fail_point("turso.file_named")
            found = self.ask(asked, [_NAME])
        return str(found[0][0])

    def name_again(self) -> None:
        """The file's log is another one than before: whoever compares identities is to see that."""
        with contextlib.suppress(SourceError):
            # one that cannot be written to now is refused all the same, by what was found in it
            self.ask("BEGIN IMMEDIATE")
            self.ask(f"DELETE FROM {_NOTES} WHERE table_name = ?", [_NAME])
            self.ask(f"INSERT INTO {_NOTES} VALUES (?, ?)", [_NAME, uuid.uuid4().hex])
            self.ask("COMMIT")

    def check_same_file(self) -> None:
        """Who has a file open goes on reading it when another one has taken its name."""
        here = os.fstat(self._file.fileno())
        try:
            there = self._config.path.stat()
        except OSError as error:
            raise SourceLostError(
                f"{self._config.path}: {error.strerror}", source=self._source, thread=1, hint="it is tried again"
            ) from error
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise SourceLostError(
                "another file has its name now", source=self._source, thread=1, hint="it is opened again, and compared"
            )

    def close(self) -> None:
        self.connection.close()
        self._file.close()


def refuse_mvcc(path: Path, source: str) -> None:
    """There ids of changes need not follow the order of commits."""
    try:
        with path.open("rb") as file:
            head = file.read(_VERSIONS.stop)
    except OSError as error:
        # the engine would make an empty one
        raise SourceLostError(
            f"{path}: {error.strerror}", source=source, hint="is the volume there? it is tried again"
        ) from error
    if head[_VERSIONS] == _MVCC:
        raise StartRefusedError(
            f"{path} is in MVCC mode, in which changes do not lie in the order of their commits",
            source=source,
            hint="PRAGMA journal_mode = wal, and let the writers capture in that",
        )


@contextlib.contextmanager
def named_errors(source: str, doing: str) -> Iterator[None]:
    try:
        yield
    except (turso.Error, *_ENGINE) as error:
        text = str(error)
        if "Locking error" in text:
            raise SourceLostError(
                "another process has the file for itself", source=source, thread=1, hint=_SHARED_HINT
            ) from error
        if any(word in text.lower() for word in _PASSING):
            raise SourceLostError(f"{doing}: {text}", source=source, thread=1, hint="it is tried again") from error
        raise SourceError(f"{doing}: {text}", source=source, thread=1, hint="see docs/turso.md") from error
