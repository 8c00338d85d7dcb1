"""A lake that is whole has no damage; one that is damaged has all of it named at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.s3 import S3Server
from tests.unit.lake.chains import MemoryStore, Writer, a_file

from lowwater.lake.chain.chain import Chain, Head
from lowwater.lake.chain.checkpoint import HINT, read_hint
from lowwater.lake.chain.checkpoint_parts import DIRECTORY
from lowwater.lake.chain.manifest import Landed, Manifest, ManifestKind, decode_manifest, manifest_path
from lowwater.lake.read.verify import Damage, verify
from lowwater.lake.store.base import Store
from lowwater.lake.store.local import LocalDirectory
from lowwater.lake.store.object import ObjectStore


@pytest.fixture(params=["local", "remote", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalDirectory(tmp_path)
    if request.param == "remote":
        return MemoryStore()
    server: S3Server = request.getfixturevalue("s3")
    return ObjectStore(server.lake_config())


def a_lake(store: Store) -> Writer:
    """Manifests 1 to 12: 4 is a copy's, 8 compacts 1 to 3, a checkpoint at 10."""
    writer = Writer(store, files=True)
    landed = [writer.land("a", "b").files[0] for _ in range(3)]
    writer.copy("a", "copy-1", 0)
    for _ in range(3):
        writer.land("b")
    writer.compact(landed)
    for _ in range(2):
        writer.land("a")
    Chain.open(store).write_checkpoint()
    for _ in range(2):
        writer.land("a", "b")
    return writer


def change(store: Store, n: int, **new: object) -> Manifest:
    manifest = decode_manifest(store.get(manifest_path(n)), n).model_copy(update=new)
    store.put(manifest_path(n), manifest.encode())
    return manifest


def found(store: Store, *, deep: bool = True) -> list[Damage]:
    return list(verify(store, deep=deep))


def test_a_whole_lake_has_no_damage(store: Store) -> None:
    a_lake(store)
    said: list[tuple[str, int, int]] = []
    assert list(verify(store, progress=lambda *what: said.append(what))) == []
    assert said[-1] == ("files", 14, 14)
    assert ("manifests", 12, 12) in said
    assert found(MemoryStore()) == []


def test_all_damage_is_named_at_once(store: Store) -> None:
    a_lake(store)
    missing, shorter, other = "stream/b/5-0.parquet", "stream/b/6-0.parquet", "stream/b/7-0.parquet"
    content = store.get(other)
    store.delete(missing)
    store.put(shorter, b"short")
    store.put(other, b"X" + content[1:])
    store.put("stream/a/attempt-of-nobody.parquet", b"rubbish")
    store.put("_ledger/notes.txt", b"rubbish")
    store.delete(manifest_path(2))
    change(store, 4, attempt="another")
    store.put(manifest_path(9), b"not a manifest")
    store.put(read_hint(store)[0].path, b"damaged")

    damage = found(store)
    by_path = {d.path: d for d in damage}
    assert len(by_path) == len(damage)
    assert all(d.hint for d in damage)
    rubbish = {path for path, d in by_path.items() if d.rubbish}
    # what the lost manifests named cannot be told from rubbish, and the hint says so
    assert rubbish == {
        "stream/a/attempt-of-nobody.parquet",
        "_ledger/notes.txt",
        "stream/a/2-0.parquet",
        "stream/b/2-1.parquet",
        "stream/a/9-0.parquet",
    }
    assert all("do not delete" in by_path[path].hint for path in rubbish)
    assert set(by_path) - rubbish == {
        missing,
        shorter,
        other,
        manifest_path(2),
        manifest_path(5),
        manifest_path(9),
        read_hint(store)[0].path,
    }
    assert "missing" in by_path[missing].what
    assert by_path[missing].manifest == 5
    assert "bytes" in by_path[shorter].what
    assert "content" in by_path[other].what
    assert "does not follow" in by_path[manifest_path(5)].what
    assert "checkpoint" in by_path[read_hint(store)[0].path].what
    # without reading the files, all but the changed content is found
    assert {d.path for d in found(store, deep=False)} == set(by_path) - {other}


def test_rubbish_is_told_from_files_that_wait_for_the_grace(store: Store) -> None:
    a_lake(store)
    store.put("stream/a/attempt-of-nobody.parquet", b"rubbish")
    assert [(d.path, d.rubbish) for d in found(store)] == [("stream/a/attempt-of-nobody.parquet", True)]
    store.delete("stream/a/1-0.parquet")  # compacted away: nobody needs it
    assert len(found(store)) == 1


WRONG: dict[str, Callable[[Writer], object]] = {
    "lands offsets": lambda w: w.append(ManifestKind.LAND, from_gsn=w.gsn, from_offset=w.offset + 1),
    "lands gsn": lambda w: w.append(ManifestKind.LAND, from_gsn=w.gsn - 1, from_offset=w.offset),
    "moves offset or gsn": lambda w: w.append(ManifestKind.COPY, landed=Landed(topic="t", offset=1)),
    "commit time decreases": lambda w: w.append(ManifestKind.COPY, commit_ts_us=1),
    "was not live": lambda w: w.append(ManifestKind.COMPACT, removed=("stream/a/1-0.parquet",)),
    "has added": lambda w: w.append(ManifestKind.COPY, files=(a_file("stream/b/5-0.parquet", "b", 4, 4),)),
    "no manifest describes": lambda w: w.append(ManifestKind.COPY, files=(a_file("copy/x", "b", 0, 0, schema_id=99),)),
    "outside of its landing": lambda w: w.append(
        ManifestKind.LAND, from_gsn=w.gsn, from_offset=w.offset, files=(a_file("stream/x", "b", 1, 1),)
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_manifest_that_cannot_be(what: str) -> None:
    store = MemoryStore()
    writer = a_lake(store)
    WRONG[what](writer)
    assert [(what in d.what, d.path, d.manifest) for d in found(store)] == [(True, manifest_path(13), 13)]


def test_a_checkpoint_that_says_something_else_than_the_chain() -> None:
    """Its bytes are whole, so that only the chain can tell."""
    other, store = MemoryStore(), MemoryStore()
    a_lake(store)
    writer = Writer(other, files=True)
    for _ in range(10):
        writer.land("a")
    chain = Chain.open(other)
    # what was folded is another history: only its head is this one's
    chain._fold.head = head_at(store, 10)
    chain.write_checkpoint()
    for path, data in other.objects.items():
        if path == HINT or path.startswith(DIRECTORY):
            store.objects[path] = data
    damage = found(store)
    assert {d.what for d in damage} == {
        "the checkpoint and the manifests differ in files",
        "the checkpoint and the manifests differ in tables",
        "the checkpoint and the manifests differ in landed_chunks",
        "the checkpoint and the manifests differ in last_schemas",
    }
    assert {d.path for d in damage} == {read_hint(store)[0].path}


def head_at(store: Store, n: int) -> Head:
    chain = Chain(store)
    chain._read_on(n)
    return chain.head


def test_a_part_that_is_gone_and_a_hint_that_cannot_be_read() -> None:
    store = MemoryStore()
    a_lake(store)
    part = next(path for path in store.objects if path.startswith(f"{DIRECTORY}/part-"))
    del store.objects[part]
    assert [d.path for d in found(store)] == [part]
    store.objects[HINT] = b"?"
    assert [d.path for d in found(store)] == [HINT]


def test_a_chain_that_is_shorter_than_its_checkpoint() -> None:
    store = MemoryStore()
    a_lake(store)
    for n in (10, 11, 12):
        store.delete(manifest_path(n))
    damage = [d for d in found(store) if not d.rubbish]
    assert [(d.manifest, d.path) for d in damage] == [(10, read_hint(store)[0].path)]
