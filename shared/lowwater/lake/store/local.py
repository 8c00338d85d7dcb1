"""A lake in a local directory. Writes are synced with fsync, of the file and of its directory."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lowwater.errors import AlreadyThereError, NotThereError, StoreError
from lowwater.lake.store.base import Stored

#: names of files that are being written
_PART = ".part-"


class LocalDirectory:
    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    def __repr__(self) -> str:
        return f"LocalDirectory({self.uri!r})"

    @property
    def uri(self) -> str:
        return str(self._root)

    def get(self, path: str) -> bytes:
        with _asking(path), (self._root / path).open("rb") as file:
            return file.read()

    def create(self, path: str, data: bytes) -> None:
        with _asking(path):
            part = self._write_part(path, data)
            try:
                # a link, unlike a rename, fails if the target exists
                os.link(part, self._root / path)
            except FileExistsError:
                raise AlreadyThereError(f"{path} is there", position=path) from None
            finally:
                part.unlink()
            self._sync_directory(path)

    def put(self, path: str, data: bytes) -> None:
        with _asking(path):
            os.replace(self._write_part(path, data), self._root / path)
            self._sync_directory(path)

    def put_file(self, path: str, local: Path) -> None:
        with _asking(path):
            target = self._root / path
            self._make_directory(target.parent)
            part = self._part_of(target)
            shutil.move(local, part)
            with part.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(part, target)
            self._sync_directory(path)

    def open(self, path: str) -> BinaryIO:
        with _asking(path):
            return (self._root / path).open("rb")

    def local_path(self, path: str) -> str | None:
        return str(self._root / path)

    def list(self, prefix: str) -> Iterator[Stored]:
        for directory, _, names in os.walk(self._root / prefix):
            for name in names:
                if _PART in name:
                    continue
                path = Path(directory, name)
                try:
                    found = path.stat()
                except FileNotFoundError:  # removed since it was listed
                    continue
                yield Stored(str(path.relative_to(self._root)), found.st_size, found.st_mtime_ns // 1000)

    def delete(self, path: str) -> None:
        with _asking(path):
            (self._root / path).unlink(missing_ok=True)

    def _part_of(self, target: Path) -> Path:
        return target.with_name(f"{_PART}{uuid.uuid4().hex}")

    def _write_part(self, path: str, data: bytes) -> Path:
        target = self._root / path
        self._make_directory(target.parent)
        part = self._part_of(target)
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return part

    def _make_directory(self, directory: Path) -> None:
        if directory.exists():
            return
        made = [above for above in (self._root, *self._root.parents) if not above.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        for above in made:  # a new root is an entry in its parent directory
            _sync(above.parent)

    def _sync_directory(self, path: str) -> None:
        """Syncs the directories up to the root: a new directory is durable once its parent is synced."""
        directory = (self._root / path).parent
        while True:
            _sync(directory)
            if directory == self._root:
                return
            directory = directory.parent


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _asking(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotThereError(f"{path} is not there", position=path) from error
    except OSError as error:
        raise StoreError(
            f"{path}: {error.strerror or error}",
            position=path,
            hint="is the disk full, and may this user write there? the file system must support hard links",
        ) from error
