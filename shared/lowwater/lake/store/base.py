"""Where a lake's files lie: a local directory, or any object store. The only thing that must be atomic is `create`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from lowwater.errors import NotThereError
from lowwater.runtime.config import LakeConfig

#: requests on their way at once, where each costs a round trip
AT_ONCE_MAX = 16


@dataclass(frozen=True, slots=True)
class Stored:
    path: str
    bytes: int
    modified_us: int


class Store(Protocol):
    """Paths are relative, with `/`. What a method has done is durable when it returns. Stores can be pickled."""

    @property
    def uri(self) -> str: ...

    def get(self, path: str) -> bytes:
        """Raises NotThereError."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Only if it is absent. Raises AlreadyThereError, or StoreError when the answer is not known.

        What is there may be our own: a request without an answer is sent again. Read it back to know.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Replaces what is there: only for what can be made again, such as checkpoints."""
        ...

    def put_file(self, path: str, local: Path) -> None:
        """Moves a local file into the store."""
        ...

    def open(self, path: str) -> BinaryIO:
        """For reading in any place; raises NotThereError."""
        ...

    def local_path(self, path: str) -> str | None:
        """The file's own path where it lies on this machine, for readers that map it; else None."""
        ...

    def list(self, prefix: str) -> Iterator[Stored]:
        """All below a directory, in any order; "" is the whole store."""
        ...

    def delete(self, path: str) -> None:
        """Also when it is already gone."""
        ...


def open_lake_store(config: LakeConfig) -> Store:
    """By the URI: `/path`, `file:///path`, or what obstore knows: `s3://bucket/prefix`, `gs://`, `az://`."""
    from lowwater.lake.store.local import LocalDirectory
    from lowwater.lake.store.object import ObjectStore

    if config.uri.startswith("file://"):
        return LocalDirectory(Path(config.uri.removeprefix("file://")))
    if "://" not in config.uri:
        return LocalDirectory(Path(config.uri))
    return ObjectStore(config)


def reads_at_once(store: Store) -> int:
    """How many reads are worth being asked for together: on a local disk there is no round trip to save."""
    return AT_ONCE_MAX if store.local_path("") is None else 1


def get_all(store: Store, paths: Sequence[str]) -> list[bytes | None]:
    """All of them, together where that is quicker; None for what is not there."""

    def get(path: str) -> bytes | None:
        try:
            return store.get(path)
        except NotThereError:
            return None

    if len(paths) <= 1 or reads_at_once(store) == 1:
        return [get(path) for path in paths]
    with ThreadPoolExecutor(min(len(paths), AT_ONCE_MAX), "lake-get") as threads:
        return list(threads.map(get, paths))
