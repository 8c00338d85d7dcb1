"""Where a lake's files lie: a local directory, or any object store. The only thing that must be atomic is `create`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from lowwater.config import LakeConfig


@dataclass(frozen=True, slots=True)
class Stored:
    path: str
    bytes: int
    modified_us: int


class Store(Protocol):
    """Paths are relative, with `/`. What a method has done is durable when it returns."""

    @property
    def uri(self) -> str: ...

    def get(self, path: str) -> bytes:
        """Raises NotThereError."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Only if it is absent. Raises AlreadyThereError, or StoreError when the answer is not known."""
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

    def list(self, prefix: str) -> Iterator[Stored]: ...

    def delete(self, path: str) -> None:
        """Also when it is already gone."""
        ...


def open_lake_store(config: LakeConfig) -> Store:
    """By the URI: `/path`, `file:///path`, or what obstore knows: `s3://bucket/prefix`, `gs://`, `az://`."""
    from lowwater.lake.local_store import LocalDirectory
    from lowwater.lake.object_store import ObjectStore

    if config.uri.startswith("file://"):
        return LocalDirectory(Path(config.uri.removeprefix("file://")))
    if "://" not in config.uri:
        return LocalDirectory(Path(config.uri))
    return ObjectStore(config)
