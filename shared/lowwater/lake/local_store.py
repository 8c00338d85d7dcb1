"""A lake in a local directory. Durable means fsync, of the file and of the directory that names it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from lowwater.errors import AlreadyThereError, NotThereError, StoreError
from lowwater.lake.store import Stored

#: names of files that are being written
_PART = ".part-"


class LocalDirectory:
    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @property
    def uri(self) -> str:
        return str(self._root)

    def get(self, path: str) -> bytes:
        with self.open(path) as file:
            return file.read()

    def create(self, path: str, data: bytes) -> None:
        part = self._write_part(path, data)
        try:
            # a link, unlike a rename, fails where there is one
            os.link(part, self._root / path)
        except FileExistsError as error:
            raise AlreadyThereError(f"{path} is there", position=path) from error
        finally:
            part.unlink()
        self._sync_directory(path)

    def put(self, path: str, data: bytes) -> None:
        os.replace(self._write_part(path, data), self._root / path)
        self._sync_directory(path)

    def put_file(self, path: str, local: Path) -> None:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = self._part_of(target)
        shutil.move(local, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
        self._sync_directory(path)

    def open(self, path: str) -> BinaryIO:
        try:
            return (self._root / path).open("rb")
        except FileNotFoundError as error:
            raise NotThereError(f"{path} is not there", position=path) from error
        except OSError as error:
            raise StoreError(f"{path}: {error.strerror}", position=path) from error

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
        (self._root / path).unlink(missing_ok=True)

    def _part_of(self, target: Path) -> Path:
        return target.with_name(f"{_PART}{uuid.uuid4().hex}")

    def _write_part(self, path: str, data: bytes) -> Path:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        part = self._part_of(target)
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return part

    def _sync_directory(self, path: str) -> None:
        """Up to the root: a new directory lasts only when the one above it is synced as well."""
        directory = (self._root / path).parent
        while True:
            handle = os.open(directory, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            if directory == self._root:
                return
            directory = directory.parent
