"""Values and lanes on disk come back whole and in order, and their files go."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.by_hand import ByHand, values_of
from tests.simulation.topic import change_value

from lowwater.errors import DiskError
from lowwater.records.positions import Order
from lowwater_merger import spool as spool_module
from lowwater_merger.core.assemble import Buffer
from lowwater_merger.core.lanes import Lane, ReleaseKey, Waiting
from lowwater_merger.core.watermark import PartitionMark
from lowwater_merger.spool import DiskSpool


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DiskSpool]:
    # small, so that a few values make several blocks and a few entries several files
    monkeypatch.setattr(spool_module, "BLOCK_BYTES", 300)
    monkeypatch.setattr(spool_module, "SEGMENT_BYTES", 1_000)
    made = DiskSpool(tmp_path / "spool", "merger-bank")
    yield made
    made.close()


def _files(tmp_path: Path) -> int:
    return len(list((tmp_path / "spool").rglob("*.spool")))


def _waiting(number: int, spool: DiskSpool | None = None) -> Waiting:
    mark = PartitionMark(3, 77, {1: Order.mark(4), 2: Order(5, 6)}, {1: "open", 2: "closed"})
    buffer = Buffer("a", 1, 10 + number, mark if number % 2 else None)
    buffer.values = [change_value(n, f"{number}-{n}") for n in range(1, 4)]
    if spool is not None:
        buffer.spool(spool.values())
        buffer.values = [change_value(4, f"{number}-4")]
    key = ReleaseKey(0, Order(number, 1), 1, f"t{number}")
    skip = "why" if number % 5 == 0 else None
    return Waiting(key, buffer, b"commit", 100 + number, 90, hash(number), 3, 50 + number, skip)


def _seen(entry: Waiting) -> tuple[object, ...]:
    mark = entry.buffer.mark
    return (
        entry.key, entry.commit, entry.clock_us, entry.commit_ts_us, entry.id_hash, entry.count, entry.commit_offset,
        entry.skip, entry.memory_bytes, entry.size_bytes, entry.buffer.source, entry.buffer.partition,
        entry.buffer.first_offset, mark and mark.record(), entry.buffer.count, entry.buffer.checksum,
        list(entry.buffer.blocks()),
    )  # fmt: skip


def test_values_come_back_in_order_and_their_file_goes(spool: DiskSpool, tmp_path: Path) -> None:
    values = spool.values()
    first = [f"v{n}".encode() * 30 for n in range(20)]
    second = [b"", b"x"]
    values.append(first)
    values.append(second)
    blocks = list(values.blocks())
    assert len(blocks) > 3
    assert [v for block in blocks for v in block] == first + second
    assert spool.size_bytes == values.size_bytes == sum(f.stat().st_size for f in spool.directory.glob("*.spool"))
    values.drop()
    values.drop()
    assert (spool.size_bytes, _files(tmp_path)) == (0, 0)
    assert spool.written_bytes_total > 0


def test_a_lane_comes_back_in_order_field_by_field_and_its_files_go(spool: DiskSpool, tmp_path: Path) -> None:
    lane = Lane()
    entries = [_waiting(n, spool if n % 3 == 0 else None) for n in range(1, 31)]
    wanted = [_seen(entry) for entry in entries]
    for entry in entries[:10]:
        lane.append(entry)
    memory = lane.memory_bytes
    lane.spill(spool.lane())
    assert lane.memory_bytes < memory
    for entry in entries[10:]:
        lane.append(entry)
    assert len(lane) == 30
    assert [entry.key for entry in lane.scan()] == [entry.key for entry in entries]
    assert _files(tmp_path) > 10
    found = []
    while lane.head:
        entry = lane.pop()
        found.append(_seen(entry))
        entry.buffer.drop()
    assert found == wanted
    assert (lane.memory_bytes, lane.size_bytes, len(lane)) == (0, 0, 0)
    assert (spool.size_bytes, _files(tmp_path)) == (0, 0)


def test_a_lane_that_was_emptied_can_be_spilled_again(spool: DiskSpool, tmp_path: Path) -> None:
    lane = Lane()
    for turn in range(3):
        numbers = range(turn * 10 + 1, turn * 10 + 6)
        for number in numbers:
            lane.append(_waiting(number))
        lane.spill(spool.lane())
        assert [lane.pop().key.txid for _ in numbers] == [f"t{n}" for n in numbers]
    assert (spool.size_bytes, _files(tmp_path)) == (0, 0)


def test_a_lane_that_is_dropped_takes_its_files_and_those_of_its_large_values(spool: DiskSpool, tmp_path: Path) -> None:
    lane = Lane()
    for number in range(1, 20):
        lane.append(_waiting(number, spool))
    lane.spill(spool.lane())
    lane.drop()
    assert (spool.size_bytes, _files(tmp_path)) == (0, 0)


def test_waiting_on_disk_needs_no_open_files(spool: DiskSpool) -> None:
    """Thousands of large transactions may wait; a process may not have thousands of files open."""
    before = len(os.listdir("/proc/self/fd"))
    lane = Lane()
    for number in range(1, 200):
        lane.append(_waiting(number, spool))
    lane.spill(spool.lane())
    assert len(os.listdir("/proc/self/fd")) - before <= 1
    spool.close()
    # nor is its lock any more
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_two_spools_of_one_group_have_directories_of_their_own(spool: DiskSpool, tmp_path: Path) -> None:
    """A merger that was taken for dead writes on when it wakes: not into its successor's files."""
    mine, others = spool.values(), DiskSpool(tmp_path / "spool", "merger-bank").values()
    mine.append([b"mine"])
    others.append([b"others"])
    mine.append([b"mine too"])
    assert list(mine.blocks()) == [[b"mine"], [b"mine too"]]
    assert list(others.blocks()) == [[b"others"]]


def test_the_directory_of_an_ended_process_is_removed_and_that_of_a_living_one_is_not(
    spool: DiskSpool, tmp_path: Path
) -> None:
    kept = spool.values()
    kept.append([b"kept"])
    left = tmp_path / "spool" / "merger-bank-left"
    left.mkdir()
    (left / "lock").touch()
    (left / "00000001.spool").touch()
    DiskSpool(tmp_path / "spool", "merger-bank")
    assert not left.exists()
    assert list(kept.blocks()) == [[b"kept"]]


def test_a_block_that_was_changed_on_disk_is_refused(spool: DiskSpool) -> None:
    values = spool.values()
    values.append([b"a" * 400, b"b" * 400])
    (path,) = spool.directory.glob("*.spool")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    blocks = values.blocks()
    assert next(blocks) == [b"a" * 400]
    with pytest.raises(DiskError, match="differs from what was written"):
        next(blocks)


@pytest.mark.parametrize("cut", [1, 100, 10_000])
def test_a_lane_whose_file_was_cut_is_refused(spool: DiskSpool, cut: int) -> None:
    lane = spool.lane()
    lane.append([_waiting(number) for number in range(1, 3)])
    (path,) = spool.directory.glob("*.spool")
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(DiskError, match="differs from what was written"):
        list(lane.scan())


def test_entries_that_another_process_wrote_are_refused_although_they_are_whole(
    spool: DiskSpool, tmp_path: Path
) -> None:
    """The same file name, the same layout, one more session: its bytes are good ones, and not ours."""
    other = DiskSpool(tmp_path / "spool", "merger-bank")
    ours, theirs = spool.lane(), other.lane()
    ours.append([_waiting(1)])
    theirs.append([_waiting(1)])
    (mine,), (others,) = spool.directory.glob("*.spool"), other.directory.glob("*.spool")
    mine.write_bytes(others.read_bytes())
    with pytest.raises(DiskError, match="differs from what was written"):
        ours.take()
    other.close()


def test_a_large_transaction_passes_through_the_disk_unchanged(spool: DiskSpool, tmp_path: Path) -> None:
    group = ByHand(spool=spool)
    group.mark({1: 0})
    group.transaction("large", 5, changes=500)
    while group.read_to[("a", 0)] < 400:
        group.read(count=50)
        group.merger.spill(1_000)
        assert group.merger.memory_bytes <= 1_000
    group.mark({1: 9})
    group.read()
    (released,) = group.released()
    assert values_of(released) == [change_value(n, f"large-{n}") for n in range(1, 501)]
    released.transaction.buffer.drop()
    assert (group.merger.size_bytes, spool.size_bytes, _files(tmp_path)) == (0, 0, 0)


def test_a_source_that_stops_leaves_no_file(spool: DiskSpool, tmp_path: Path) -> None:
    group = ByHand(spool=spool)
    group.mark({1: 0})
    for seq in (1, 2, 3):
        group.change("broken", seq)
    group.change("open", 1)
    group.read()
    group.merger.spill(0)
    assert _files(tmp_path) == 2
    group.commit("broken", 5, changes=4)
    group.read()
    assert group.source().error is not None
    assert (spool.size_bytes, _files(tmp_path)) == (0, 0)
