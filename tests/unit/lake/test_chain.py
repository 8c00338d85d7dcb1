"""The fold of the manifests, and what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.unit.lake.chains import MemoryStore, Writer, a_file

from lowwater.errors import LakeDamagedError, LakeError, LedgerError, NotThereError
from lowwater.lake.chain.chain import Chain, TableSummary
from lowwater.lake.chain.manifest import ManifestKind, manifest_path
from lowwater.lake.store.base import Store
from lowwater.lake.store.local import LocalDirectory


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return LocalDirectory(tmp_path) if request.param == "local" else MemoryStore()


def test_an_empty_lake_is_before_the_first_manifest(store: Store) -> None:
    chain = Chain.open(store)
    assert (chain.head.n, chain.head.gsn, chain.tables(), chain.files("t"), chain.summary("t")) == (
        *(0, 0, [], []),
        TableSummary(),
    )
    assert chain.first_after(0) is None
    assert chain.write_checkpoint_if_due() is False
    with pytest.raises(LakeError):
        chain.manifest(1)


def test_files_are_live_until_they_are_compacted(store: Store) -> None:
    writer = Writer(store)
    chain = Chain.open(store)
    first, second = writer.land("a", "b"), writer.land("a")
    assert [m.n for m in chain.refresh()] == [1, 2]
    assert chain.refresh() == []
    assert chain.files("a") == [first.files[0], second.files[0]]
    compacted = writer.compact(chain.files("a"))
    assert chain.is_live(first.files[0]), "before the refresh"
    chain.refresh()
    assert chain.files("a") == list(compacted.files)
    assert not chain.is_live(first.files[0])
    assert chain.is_live(first.files[1])
    assert chain.is_live(compacted.files[0])
    assert chain.tables() == ["a", "b"]
    assert chain.summary("a") == TableSummary(1, 7, compacted.files[0].bytes, 1, 2)


def test_files_are_chosen_by_gsn(store: Store) -> None:
    writer = Writer(store)
    copied = writer.copy("a", "copy-1", 0)
    landed = [writer.land("a", transactions=10) for _ in range(3)]
    chain = Chain.open(store)

    def found(*wanted: int) -> list[int]:
        return [f.gsn_min for f in chain.files("a", *wanted)]

    assert found() == [0, 1, 11, 21]
    assert chain.files("a")[0] == copied.files[0]
    assert found(10) == [11, 21]
    assert found(9) == [1, 11, 21]
    assert found(9, 20) == [1, 11]
    assert found(0, 0) == [0]
    assert landed[-1].gsn == chain.head.gsn == 30


def test_copies(store: Store) -> None:
    writer = Writer(store)
    for chunk in (0, 1, 3):
        writer.copy("a", "copy-1", chunk)
    writer.copy("a", "copy-2", 0)
    chain = Chain.open(store)
    assert chain.landed_chunks == {("copy-1", 0), ("copy-1", 1), ("copy-1", 3), ("copy-2", 0)}
    writer.append(ManifestKind.COPY, closed_copies=("copy-1",))
    chain.refresh()
    assert chain.closed_copies == {"copy-1"}
    assert chain.landed_chunks == {("copy-2", 0)}


def test_schemas_of_the_last_landings(store: Store) -> None:
    writer = Writer(store)
    for n in range(12):
        writer.land("a", schema_id=n)
        writer.copy("a", "copy-1", n)
    assert Chain.open(store).last_schema_ids == set(range(2, 12))


def test_a_time_is_searched_for(store: Store) -> None:
    writer = Writer(store)
    times = []
    for _ in range(20):
        times.append(writer.land("a").commit_ts_us)
        times.append(writer.copy("a", "copy-1", 1).commit_ts_us)
    chain = Chain.open(store)
    for time_us in (0, 1, 999, 1000, 1001, 10_500, 19_999, 20_000, 30_000):
        expected = next((n for n, at in enumerate(times, 1) if at > time_us), None)
        assert chain.first_after(time_us) == expected


def test_the_log_is_the_manifests_in_view(store: Store) -> None:
    writer = Writer(store)
    written = [writer.land("a") for _ in range(40)]
    chain = Chain.open(store)
    writer.land("a")
    assert list(chain.log()) == written
    assert list(chain.log(5, 7)) == written[4:7]
    assert chain.manifest(40) == written[39]
    with pytest.raises(LakeError):
        chain.manifest(41)
    store.delete(manifest_path(6))
    with pytest.raises(LakeDamagedError, match="manifest 6 is missing"):
        chain.manifest(6)
    with pytest.raises(LakeDamagedError, match="manifest 6 is missing"):
        list(chain.log())


def test_a_changed_manifest_is_refused(store: Store) -> None:
    writer = Writer(store)
    second = [writer.land("a") for _ in range(3)][1]
    store.put(manifest_path(2), second.model_copy(update={"attempt": "another"}).encode())
    with pytest.raises(LakeDamagedError, match="manifest 3 does not follow"):
        Chain.open(store)
    store.put(manifest_path(2), b"{}")
    with pytest.raises(LedgerError, match="manifest 2"):
        Chain.open(store)


@pytest.mark.parametrize("missing", [1, 2, 5, 29])
def test_a_gap_is_not_the_end(store: Store, missing: int) -> None:
    writer = Writer(store)
    for _ in range(30):
        writer.land("a")
    store.delete(manifest_path(missing))
    with pytest.raises(LakeDamagedError, match=f"manifest {missing} is missing"):
        Chain.open(store)


def test_manifests_that_come_while_it_is_read_are_no_gap() -> None:
    """Those behind the end are asked for together with it: they can be there when it was not yet."""

    class Slow(MemoryStore):
        def get(self, path: str) -> bytes:
            try:
                return super().get(path)
            except NotThereError:
                if path == manifest_path(6) and writer.n == 5:
                    for _ in range(3):
                        writer.land("a")
                raise

    writer = Writer(store := Slow())
    for _ in range(5):
        writer.land("a")
    assert Chain.open(store).head.n == 8


def test_removing_what_is_not_live_does_nothing(store: Store) -> None:
    writer = Writer(store)
    writer.land("a")
    writer.append(ManifestKind.COMPACT, removed=("nothing/of/that",))
    assert len(Chain.open(store).files("a")) == 1
    assert not Chain.open(store).is_live(a_file("nothing/of/that", "a", 1, 1))


def test_the_head_is_a_value() -> None:
    assert dataclasses.is_dataclass(Chain(MemoryStore()).head)
    assert Chain(MemoryStore()).head == Chain(MemoryStore()).head
