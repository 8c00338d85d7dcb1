"""Connections to a database file, and the mapping of driver errors to lowwater's.

Turso lets only one process open a file, unless all of them open it for several processes, which then share an index in
memory (`-tshm`). So the writers, and this module, open it with `lowwater.turso.FEATURES`.
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

#: how long new connections retry to read rows that were read before, until these rows count as deleted
DOUBT_SECONDS = 5.0
_AGAIN_SECONDS = 0.01
#: file format versions in the file header: 2 is a write-ahead log, 255 is MVCC
_VERSIONS = slice(18, 20)
_MVCC = b"\xff\xff"
_SHARED_HINT = f'let every process open it with experimental_features="{FEATURES}" (lowwater.turso.FEATURES)'
#: errors after which another attempt may succeed
_STILL_OPEN = "duplicate same-process"
_PASSING = ("locked", "busy", "i/o error", "short read", "schema changed", "interrupt", _STILL_OPEN)

#: struct flock: type, whence, start, length (0: to the end), process
_FLOCK = struct.Struct("hhqqi4x")

#: table_name, version
_NOTES = "turso_cdc_version"
_NAME = "lowwater"


#: exceptions of the engine that the driver does not convert to its own
_ENGINE = (EngineError, Busy, Interrupt, Corrupt, NotAdb, DatabaseFull, Misuse, Constraint, Readonly)


class Select:
    """A SELECT that is stepped directly: the driver's cursor adds a third to the time."""

    def __init__(self, connection: turso.Connection, statement: str, parameters: Sequence[Any]) -> None:
        self._statement = connection(statement)
        self._statement.bind(tuple(parameters))
        self._is_done = False

    def fetch(self, count: int) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `count`; none at the end."""
        step, row, is_row = self._statement.step, self._statement.row, Status.Row
        rows: list[tuple[Any, ...]] = []
        add = rows.append
        for _ in range(0 if self._is_done else count):
            status = step()
            # nearly always it is this object itself, so that `==` is not needed
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
        # the engine runs an unfinished statement to its end. Errors there are ignored: all needed rows were fetched,
        # and the next read reports a damaged file
        with contextlib.suppress(turso.Error, *_ENGINE):
            self._statement.finalize()


class Database:
    """A connection to the database file; its own writes are not captured."""

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
                # the driver still has an unused connection to an earlier file of this name
                gc.collect()
                connection = self._opened()
            connection.execute(f"PRAGMA busy_timeout = {int(self._config.busy_seconds * 1000)}").fetchall()
        return connection

    def _opened(self) -> turso.Connection:
        return turso.connect(str(self._config.path), isolation_level=None, experimental_features=FEATURES)

    def connect_anew(self) -> None:
        """Replace the connection by a new one.

        When a process opens a file whose writer was killed, it rebuilds the shared index; meanwhile an existing
        connection may read older pages than before. A connection that is opened afterwards does not.
        """
        time.sleep(_AGAIN_SECONDS)
        fresh = self._connect()
        self.connection.close()
        self.connection = fresh

    def ask(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with named_errors(self._source, "read"):
            rows: list[tuple[Any, ...]] = self.connection.execute(statement, tuple(parameters)).fetchall()
        return rows

    def select(self, statement: str, parameters: Sequence[Any] = ()) -> Select:
        """Return a SELECT of many rows; the caller must wrap it and its fetches in `named_errors`."""
        return Select(self.connection, statement, parameters)

    def check_shared(self) -> None:
        """Raise SourceLostError if another process has opened the file exclusively.

        Turso does not detect it if one process shares a file and another opens it exclusively: each misses the other's
        writes. Called before the file is read, and again before the rows that were read are used.
        """
        if sys.platform != "linux":
            return
        asked = fcntl.fcntl(self._file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, 0, 0, 0, 0))
        kind, _, _, _, pid = _FLOCK.unpack(asked)
        if kind != fcntl.F_UNLCK:
            raise SourceLostError(
                f"process {pid} has opened the file exclusively", source=self._source, thread=1, hint=_SHARED_HINT
            )

    @contextlib.contextmanager
    def view(self) -> Iterator[None]:
        """A read transaction: all queries inside see one state of the database."""
        self.ask("BEGIN")
        try:
            yield
        finally:
            self.ask("ROLLBACK")

    def identity(self) -> str:
        """Return the file's identity; create it if the file has none.

        A file has no identity that survives a move, so one is stored in the table in which Turso registers CDC tables.
        A separate table would be a schema change, which makes statements of Turso's writers fail.
        """
        asked = f"SELECT version FROM {_NOTES} WHERE table_name = ?"
        if not (found := self.ask(asked, [_NAME])):
            # if two processes do so at once, the first one wins
            self.ask(f"INSERT OR IGNORE INTO {_NOTES} VALUES (?, ?)", [_NAME, uuid.uuid4().hex])
            fail_point("turso.file_named")
            found = self.ask(asked, [_NAME])
        return str(found[0][0])

    def name_again(self) -> None:
        """Give the file a new identity, because its log is not the one that was read before."""
        with contextlib.suppress(SourceError):
            # if the file cannot be written now, the caller still raises its error
            self.ask("BEGIN IMMEDIATE")
            self.ask(f"DELETE FROM {_NOTES} WHERE table_name = ?", [_NAME])
            self.ask(f"INSERT INTO {_NOTES} VALUES (?, ?)", [_NAME, uuid.uuid4().hex])
            self.ask("COMMIT")

    def check_same_file(self) -> None:
        """Raise SourceLostError if the path is now another file: the open one would still be read."""
        here = os.fstat(self._file.fileno())
        try:
            there = self._config.path.stat()
        except OSError as error:
            raise SourceLostError(
                f"{self._config.path}: {error.strerror}", source=self._source, thread=1, hint="retried automatically"
            ) from error
        if (here.st_dev, here.st_ino) != (there.st_dev, there.st_ino):
            raise SourceLostError(
                "the path is another file now", source=self._source, thread=1, hint="the new file is opened and checked"
            )

    def close(self) -> None:
        self.connection.close()
        self._file.close()


def refuse_mvcc(path: Path, source: str) -> None:
    """Raise StartRefusedError for a file in MVCC mode: there, change ids need not follow the commit order."""
    try:
        with path.open("rb") as file:
            head = file.read(_VERSIONS.stop)
    except OSError as error:
        # the engine would create an empty file
        raise SourceLostError(
            f"{path}: {error.strerror}", source=source, hint="is the volume mounted? retried automatically"
        ) from error
    if head[_VERSIONS] == _MVCC:
        raise StartRefusedError(
            f"{path} is in MVCC mode, in which changes are not in commit order",
            source=source,
            hint="run PRAGMA journal_mode = wal, and let the writers capture in that mode",
        )


@contextlib.contextmanager
def named_errors(source: str, doing: str) -> Iterator[None]:
    try:
        yield
    except (turso.Error, *_ENGINE) as error:
        text = str(error)
        if "Locking error" in text:
            raise SourceLostError(
                "another process has opened the file exclusively", source=source, thread=1, hint=_SHARED_HINT
            ) from error
        if any(word in text.lower() for word in _PASSING):
            raise SourceLostError(f"{doing}: {text}", source=source, thread=1, hint="retried automatically") from error
        raise SourceError(f"{doing}: {text}", source=source, thread=1, hint="see docs/turso.md") from error
