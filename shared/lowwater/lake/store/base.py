"""The interface of stores for a lake's files: a local directory or an object store. Only `create` must be atomic."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from lowwater.errors import NotThereError
from lowwater.runtime.config import LakeConfig

#: maximum number of parallel requests to an object store
AT_ONCE_MAX = 16


@dataclass(frozen=True, slots=True)
class Stored:
    path: str
    bytes: int
    modified_us: int


class Store(Protocol):
    """Paths are relative, with `/`. Writes are durable when a method returns. Stores can be pickled."""

    @property
    def uri(self) -> str: ...

    def get(self, path: str) -> bytes:
        """Raises NotThereError."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Creates an object only if it is absent. Raises AlreadyThereError, or StoreError if the result is unknown.

        After AlreadyThereError the object may be our own, because a request without a response is sent again: read it
        back to find out.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Creates or replaces an object: only for data that can be derived again, such as checkpoints."""
        ...

    def put_file(self, path: str, local: Path) -> None:
        """Moves a local file into the store."""
        ...

    def open(self, path: str) -> BinaryIO:
        """A seekable file for reading. Raises NotThereError."""
        ...

    def local_path(self, path: str) -> str | None:
        """The path of the file if the store is a local directory, for readers that map it; else None."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """All objects below a directory, in any order; "" is the whole store."""
        ...

    def delete(self, path: str) -> None:
        """Deletes an object. No error if it does not exist."""
        ...


def open_lake_store(config: LakeConfig) -> Store:
    """The store for a URI: `/path`, `file:///path`, or a URI of obstore: `s3://bucket/prefix`, `gs://`, `az://`."""
    from lowwater.lake.store.local import LocalDirectory
    from lowwater.lake.store.object import ObjectStore

    if config.uri.startswith("file://"):
        return LocalDirectory(Path(config.uri.removeprefix("file://")))
    if "://" not in config.uri:
        return LocalDirectory(Path(config.uri))
    return ObjectStore(config)


def reads_at_once(store: Store) -> int:
    """How many reads to send in parallel: 1 for a local disk, which has no round trips."""
    return AT_ONCE_MAX if store.local_path("") is None else 1


def get_all(store: Store, paths: Sequence[str]) -> list[bytes | None]:
    """Reads all objects, in parallel if that is faster; None for an object that does not exist."""

    def get(path: str) -> bytes | None:
        try:
            return store.get(path)
        except NotThereError:
            return None

    if len(paths) <= 1 or reads_at_once(store) == 1:
        return [get(path) for path in paths]
    with ThreadPoolExecutor(min(len(paths), AT_ONCE_MAX), "lake-get") as threads:
        return list(threads.map(get, paths))
