"""The one contract of all stores, on a local disk and on S3."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.s3 import S3Server

from lowwater.errors import AlreadyThereError, ConfigError, NotThereError, StoreError
from lowwater.lake.store.base import Store, get_all, open_lake_store
from lowwater.lake.store.local import LocalDirectory
from lowwater.lake.store.object import ObjectStore
from lowwater.runtime.config import LakeConfig


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "local":
        yield open_lake_store(LakeConfig(uri=str(tmp_path / "made" / "by" / "the" / "store")))
    else:
        server: S3Server = request.getfixturevalue("s3")
        yield open_lake_store(server.lake_config())


def paths(store: Store, prefix: str) -> list[str]:
    return sorted(stored.path for stored in store.list(prefix))


@contextmanager
def peak_memory() -> Iterator[list[int]]:
    """How many bytes more than at the beginning were in memory, at most."""
    process, done = psutil.Process(), threading.Event()
    before = process.memory_info().rss
    peak = [0]

    def watch() -> None:
        while not done.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def test_what_is_put_can_be_read_listed_and_deleted(store: Store) -> None:
    store.put("a/one", b"1")
    store.put("a/b/two", b"22")
    store.put("ab/three", b"333")
    store.put("a/one", b"1111")
    assert store.get("a/one") == b"1111"
    assert {(s.path, s.bytes) for s in store.list("")} == {("a/one", 4), ("a/b/two", 2), ("ab/three", 3)}
    assert all(s.modified_us > 1_600_000_000_000_000 for s in store.list(""))
    assert paths(store, "a") == ["a/b/two", "a/one"], "a prefix is a directory, not the beginning of a name"
    store.delete("a/one")
    store.delete("a/one")
    assert paths(store, "a") == ["a/b/two"]
    assert paths(store, "nothing") == []


def test_what_is_not_there_is_said_so(store: Store) -> None:
    for read in (store.get, store.open):
        with pytest.raises(NotThereError) as raised:
            read("a/nothing")
        assert raised.value.position == "a/nothing"
    assert get_all(store, ["a", "b"]) == [None, None]


def test_created_once(store: Store) -> None:
    store.create("c", b"first")
    with pytest.raises(AlreadyThereError):
        store.create("c", b"second")
    assert store.get("c") == b"first"


def test_of_sixteen_that_create_at_once_one_wins(store: Store) -> None:
    for round_ in range(20):
        path, together = f"_ledger/{round_}", threading.Barrier(16)

        def create(i: int, path: str = path, together: threading.Barrier = together) -> bool:
            together.wait()
            try:
                store.create(path, str(i).encode())
            except AlreadyThereError:
                return False
            return True

        with ThreadPoolExecutor(16) as threads:
            won = list(threads.map(create, range(16)))
        assert won.count(True) == 1
        assert store.get(path) == str(won.index(True)).encode()


def test_a_large_file_is_moved_without_being_held_in_memory(store: Store, tmp_path: Path) -> None:
    local = tmp_path / "large"
    piece = os.urandom(1 << 20)
    with local.open("wb") as file:
        for _ in range(100):
            file.write(piece)
    with peak_memory() as peak:
        store.put_file("data/large", local)
    assert peak[0] < 80 << 20
    assert not local.exists()
    assert [s.bytes for s in store.list("data")] == [100 << 20]
    sha256 = hashlib.sha256()
    with store.open("data/large") as file:
        while got := file.read(300_000):
            sha256.update(got)
        assert file.seek(-3, os.SEEK_END) == (100 << 20) - 3
        assert file.read(100) == piece[-3:]
        file.seek((1 << 20) + 5)
        assert file.read(10) == piece[5:15]
    assert sha256.digest() == hashlib.sha256(piece * 100).digest()


def test_parquet_is_read_by_ranges(store: Store, tmp_path: Path) -> None:
    rows = pa.table({"a": range(200_000), "b": [f"row {n}" for n in range(200_000)]})
    pq.write_table(rows, tmp_path / "p", row_group_size=50_000)
    store.put_file("p.parquet", tmp_path / "p")
    with store.open("p.parquet") as raw, pq.ParquetFile(raw) as file:
        assert file.read_row_group(2, columns=["b"])["b"][0].as_py() == "row 100000"
        assert file.read().equals(rows)


def test_a_store_can_be_shipped_to_another_process(store: Store, tmp_path: Path) -> None:
    store.put("a", b"shipped")  # connected, which must not matter
    shipped = tmp_path / "pickle"
    shipped.write_bytes(pickle.dumps(store))
    code = f"import pickle; print(pickle.load(open({str(shipped)!r}, 'rb')).get('a').decode())"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "shipped\n"


def test_a_file_where_a_directory_should_be_is_an_error_of_ours(tmp_path: Path) -> None:
    (tmp_path / "_ledger").write_text("a file")
    for write in (LocalDirectory(tmp_path).create, LocalDirectory(tmp_path).put):
        with pytest.raises(StoreError) as raised:
            write("_ledger/1", b"")
        assert raised.value.hint


def test_what_a_crash_left_half_written_is_not_listed(tmp_path: Path) -> None:
    store = LocalDirectory(tmp_path)
    store.put("a/one", b"1")
    (tmp_path / "a" / ".part-0123").write_text("half")
    assert paths(store, "") == ["a/one"]


def test_no_secret_is_shown_or_shipped(s3: S3Server) -> None:
    store = ObjectStore(s3.lake_config())
    store.put("a", b"1")
    assert s3.secret not in repr(store)
    assert s3.secret.encode() not in pickle.dumps(store)


def test_a_wrong_key_is_refused_without_being_shown(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_TEST_OTHER_SECRET", "not-the-right-secret")
    store = ObjectStore(s3.lake_config("wrong", secret_access_key="${env:S3_TEST_OTHER_SECRET}"))
    for ask in (
        lambda: store.get("a"),
        lambda: store.put("a", b""),
        lambda: store.create("a", b""),
        lambda: list(store.list("")),
    ):
        with pytest.raises(StoreError) as raised:
            ask()
        assert not isinstance(raised.value, (NotThereError, AlreadyThereError))
        assert "SignatureDoesNotMatch" in str(raised.value)
        assert "not-the-right-secret" not in str(raised.value)
        assert raised.value.__suppress_context__


def test_a_bucket_that_does_not_exist_is_not_an_empty_lake(s3: S3Server) -> None:
    store = ObjectStore(s3.lake_config().model_copy(update={"uri": "s3://no-such-bucket/lake"}))
    for ask in (lambda: store.get("a"), lambda: store.create("a", b"")):
        with pytest.raises(StoreError, match="bucket") as raised:
            ask()
        assert not isinstance(raised.value, NotThereError)


def test_an_endpoint_that_does_not_answer_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowwater.lake.store.object._RETRIES_MAX", 1)
    monkeypatch.setenv("S3_TEST_OTHER_SECRET", "x")
    options = {
        "endpoint": "http://127.0.0.1:1",
        "allow_http": "true",
        "access_key_id": "x",
        "secret_access_key": "${env:S3_TEST_OTHER_SECRET}",
    }
    store = ObjectStore(LakeConfig(uri="s3://bucket/lake", options=options))
    for ask in (lambda: store.get("a"), lambda: store.create("a", b"")):
        with pytest.raises(StoreError) as raised:
            ask()
        assert type(raised.value) is StoreError


def test_an_unknown_option_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("S3_TEST_OTHER_SECRET", "hidden-value")
    options = {"no_such_option": "1", "secret_access_key": "${env:S3_TEST_OTHER_SECRET}"}
    with pytest.raises(ConfigError, match="no_such_option") as raised:
        ObjectStore(LakeConfig(uri="s3://bucket/lake", options=options)).get("a")
    assert "hidden-value" not in str(raised.value)


def test_a_secret_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("S3_TEST_OTHER_SECRET", raising=False)
    options = {"secret_access_key": "${env:S3_TEST_OTHER_SECRET}"}
    with pytest.raises(ConfigError, match="S3_TEST_OTHER_SECRET"):
        ObjectStore(LakeConfig(uri="s3://bucket/lake", options=options)).get("a")


def test_obstore_is_loaded_only_where_it_is_used() -> None:
    code = "import sys, lowwater.lake.chain.chain, lowwater.lake.store.object; assert 'obstore' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
