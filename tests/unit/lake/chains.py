"""Chains of manifests for tests, and a store that counts what it is asked."""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from lowwater.errors import AlreadyThereError, NotThereError
from lowwater.lake.chain.manifest import (
    File,
    Landed,
    Layer,
    Manifest,
    ManifestKind,
    TableVersion,
    digest,
    manifest_path,
)
from lowwater.lake.store.base import Store, Stored

TOPIC = "lowwater.bank.transactions"
VERSION = TableVersion(table="bank.accounts", version=1, key=("id",), avro="{}")


class MemoryStore:
    """As remote as an object store: it has no local path. `asked` counts the calls."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: Counter[str] = Counter()

    @property
    def uri(self) -> str:
        return "memory:"

    def get(self, path: str) -> bytes:
        self.asked["get"] += 1
        try:
            return self.objects[path]
        except KeyError:
            raise NotThereError(f"{path} is not there", position=path) from None

    def create(self, path: str, data: bytes) -> None:
        if self.objects.setdefault(path, data) is not data:
            raise AlreadyThereError(f"{path} is there", position=path)

    def put(self, path: str, data: bytes) -> None:
        self.asked["put"] += 1
        self.objects[path] = data

    def put_file(self, path: str, local: Path) -> None:
        self.put(path, local.read_bytes())
        local.unlink()

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.get(path))

    def local_path(self, path: str) -> str | None:
        return None

    def list(self, prefix: str) -> Iterator[Stored]:
        self.asked["list"] += 1
        for path, data in list(self.objects.items()):
            if not prefix or path.startswith(f"{prefix}/"):
                yield Stored(path, len(data), 0)

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)


def content_of(path: str) -> bytes:
    return f"rows of {path}".encode()


def a_file(path: str, table: str, gsn_min: int, gsn_max: int, **more: Any) -> File:
    content = content_of(path)
    sha256 = hashlib.sha256(content).hexdigest()
    own: dict[str, Any] = {"schema_id": 1, "key": ("id",), "rows": 7, "bytes": len(content), "sha256": sha256}
    return File(path=path, table=table, gsn_min=gsn_min, gsn_max=gsn_max, **own | more)


class Writer:
    """Appends manifests that a real writer could have written. `files=True` also writes what they name."""

    def __init__(self, store: Store, *, files: bool = False) -> None:
        self._store = store
        self._files = files
        self.n = 0
        self.gsn = 0
        self.offset = 0
        self.commit_ts_us = 0
        self._previous = ""

    def land(self, *tables: str, transactions: int = 1, **more: Any) -> Manifest:
        first, from_gsn, from_offset = self.gsn + 1, self.gsn, self.offset
        self.gsn += transactions
        self.offset += 2 * transactions
        self.commit_ts_us += 1000
        files = tuple(
            a_file(f"stream/{table}/{self.n + 1}-{i}.parquet", table, first, self.gsn, **more)
            for i, table in enumerate(tables)
        )
        return self.append(
            ManifestKind.LAND, files=files, from_gsn=from_gsn, from_offset=from_offset, transactions=transactions
        )

    def copy(self, table: str, copy_id: str, chunk: int) -> Manifest:
        file = a_file(f"copy/{table}/{self.n + 1}.parquet", table, 0, 0, layer=Layer.COPY, copy_id=copy_id, chunk=chunk)
        return self.append(ManifestKind.COPY, files=(file,))

    def compact(self, inputs: list[File]) -> Manifest:
        table = inputs[0].table
        low, high = min(f.gsn_min for f in inputs), max(f.gsn_max for f in inputs)
        file = a_file(f"stream/{table}/{self.n + 1}-c.parquet", table, low, high)
        return self.append(ManifestKind.COMPACT, files=(file,), removed=tuple(f.path for f in inputs))

    def append(self, kind: ManifestKind, **more: Any) -> Manifest:
        own: dict[str, Any] = {
            "n": self.n + 1,
            "kind": kind,
            "group": "bank",
            "attempt": f"attempt-{self.n + 1}",
            "at_us": self.n,
            "previous": self._previous,
            "landed": Landed(topic=TOPIC, topic_id="id", offset=self.offset) if self.gsn else Landed(),
            "gsn": self.gsn,
            "commit_ts_us": self.commit_ts_us,
            "clock_us": self.commit_ts_us,
            "versions": {1: VERSION} if self.n == 0 else {},
        }
        manifest = Manifest(**own | more)
        if self._files:
            for file in manifest.files:
                self._store.put(file.path, content_of(file.path))
        self.put(manifest)
        return manifest

    def put(self, manifest: Manifest) -> None:
        data = manifest.encode()
        self._store.create(manifest_path(manifest.n), data)
        self.n, self._previous = manifest.n, digest(data)
