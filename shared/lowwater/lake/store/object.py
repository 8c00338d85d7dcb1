"""A lake in an object store, through `obstore`: S3 and compatible stores, GCS, Azure.

A store is sent to Spark's workers: it is pickled as its config, which has references and no secrets, and connects at
its first use. `obstore` does not survive a fork, so there is no connection before that.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from lowwater.errors import AlreadyThereError, ConfigError, NotThereError, StoreError
from lowwater.lake.store.base import Stored
from lowwater.runtime.config import MEBIBYTE, LakeConfig
from lowwater.runtime.secrets import resolve

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Connection

#: options of the HTTP client; all other options are for the store
_CLIENT_OPTIONS = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "http2_max_frame_size",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
#: `timeout` is for one request with its response, such as a part of a file over a slow connection
_CLIENT_DEFAULTS = {"connect_timeout": "5s", "read_timeout": "30s", "timeout": "120s"}
_RETRIES_MAX = 6
_RETRY_SECONDS_MAX = 60
#: S3 allows at most 10,000 parts: 80 GB per file. With four parallel requests, 32 MB are in memory
_PART_BYTES = 8 * MEBIBYTE
_PARTS_AT_ONCE = 4
#: minimum size of a read, so that adjacent small reads need no further requests
_READ_AHEAD_BYTES = MEBIBYTE

_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_STATUS = re.compile(r"status code: (\d{3}[ \w]*)")
_CODE = re.compile(r"<Code>(\w+)</Code>")


class ObjectStore:
    def __init__(self, config: LakeConfig) -> None:
        self._config = config
        self._connection: Connection | None = None

    def __repr__(self) -> str:
        return f"ObjectStore({self.uri!r})"

    def __getstate__(self) -> LakeConfig:
        return self._config

    def __setstate__(self, config: LakeConfig) -> None:
        self._config = config
        self._connection = None

    @property
    def uri(self) -> str:
        return self._config.uri.rstrip("/")

    def get(self, path: str) -> bytes:
        import obstore

        with _asking(path):
            return bytes(obstore.get(self._connected(), path).bytes())

    def create(self, path: str, data: bytes) -> None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, NotModifiedError, PreconditionError

        with _asking(path):
            try:
                obstore.put(self._connected(), path, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError, NotModifiedError):
                # S3 also answers "conflict" to two concurrent requests before one of them has succeeded. And an
                # existing object may be our own: a request without a response is sent again.
                try:
                    obstore.head(self._connected(), path)
                except FileNotFoundError:
                    raise StoreError(
                        f"{path}: the store refused to create it, although it does not exist",
                        position=path,
                        hint="another writer is creating it: try again",
                    ) from None
                raise AlreadyThereError(f"{path} is there", position=path) from None

    def put(self, path: str, data: bytes) -> None:
        import obstore

        with _asking(path):
            obstore.put(self._connected(), path, data, use_multipart=False)

    def put_file(self, path: str, local: Path) -> None:
        import obstore

        with local.open("rb") as file, _asking(path):
            obstore.put(
                self._connected(), path, file, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_ONCE, mode="overwrite"
            )
        local.unlink()

    def open(self, path: str) -> BinaryIO:
        import obstore

        with _asking(path):
            size = obstore.head(self._connected(), path)["size"]
        return io.BufferedReader(_Ranges(self._connected(), path, size), _READ_AHEAD_BYTES)

    def local_path(self, path: str) -> str | None:
        return None

    def list(self, prefix: str) -> Iterator[Stored]:
        import obstore

        with _asking(prefix):
            for page in obstore.list(self._connected(), prefix or None):
                for found in page:
                    modified_us = int(found["last_modified"].timestamp() * 1_000_000)
                    yield Stored(found["path"], found["size"], modified_us)

    def delete(self, path: str) -> None:
        import obstore

        try:
            with _asking(path):
                obstore.delete(self._connected(), path)
        except NotThereError:
            return

    def _connected(self) -> Connection:
        if self._connection is None:
            self._connection = _connect(self._config)
        return self._connection


def _connect(config: LakeConfig) -> Connection:
    from obstore.exceptions import BaseError
    from obstore.store import from_url

    filled = {name.lower(): resolve(value) for name, value in config.options.items()}
    client: Any = _CLIENT_DEFAULTS | {name: value for name, value in filled.items() if name in _CLIENT_OPTIONS}
    own: Any = {name: value for name, value in filled.items() if name not in _CLIENT_OPTIONS}
    try:
        return from_url(
            config.uri,
            config=own,
            client_options=client,
            retry_config={"max_retries": _RETRIES_MAX, "retry_timeout": timedelta(seconds=_RETRY_SECONDS_MAX)},
        )
    except (BaseError, ValueError, TypeError):
        # the error of obstore may contain a value, which may be a secret
        raise ConfigError(
            f"the lake {config.uri} cannot be opened with the options {', '.join(sorted(filled)) or '(none)'}",
            hint="the URI is s3://bucket/prefix, gs://… or az://…; the options are those of obstore's stores",
        ) from None


@contextmanager
def _asking(path: str) -> Iterator[None]:
    """Converts errors of obstore. They contain addresses and signed headers, which may be secrets: only the status and
    the error code of the response are retained.
    """
    from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

    try:
        yield
    except FileNotFoundError as error:
        if _NO_BUCKET.search(str(error)):
            raise StoreError(
                f"{path}: the bucket does not exist", position=path, hint="create it, or fix the lake's `uri`"
            ) from None
        raise NotThereError(f"{path} is not there", position=path) from None
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise StoreError(
            f"{path}: the store refused: {_answer(error)}",
            position=path,
            hint="check the keys in the lake's `options`; they must be allowed to read, write and list "
            "(without permission to list, a store gives this error also for objects that do not exist)",
        ) from None
    except (BaseError, OSError, ValueError) as error:
        raise StoreError(
            f"{path}: the store gave no answer, or an unknown one: {_answer(error)}",
            position=path,
            hint="can the endpoint in the lake's `options` be reached? the request may have been executed nevertheless",
        ) from None


def _answer(error: Exception) -> str:
    said = str(error)
    status, code = _STATUS.search(said), _CODE.search(said)
    if status is None:
        return type(error).__name__
    return status.group(1).strip() + (f" ({code.group(1)})" if code else "")


class _Ranges(io.RawIOBase):
    """An object as a file, read with range requests."""

    def __init__(self, connection: Connection, path: str, size: int) -> None:
        super().__init__()
        self._connection = connection
        self._path = path
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"{self._path}: seek before its beginning")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        import obstore

        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        with _asking(self._path):
            got = obstore.get_range(self._connection, self._path, start=self._at, length=wanted)
        buffer[: len(got)] = memoryview(got)
        self._at += len(got)
        return len(got)
