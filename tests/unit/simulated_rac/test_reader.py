"""Reading one thread's files: what is not there yet, what is gone, what is damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.simulated_rac.test_kit import Runtime, check_all, committed, new_cluster

from lowwater.errors import IncarnationError, LogCorruptError, LogGapError
from lowwater_extractor.sources.simulated_rac import log
from lowwater_extractor.sources.simulated_rac.cluster import Cluster
from lowwater_extractor.sources.simulated_rac.reader import LogEnd, ThreadReader, log_there


def reader(cluster: Cluster, thread: int = 1, sequence: int = 1, slice_max: int = 1 << 20) -> ThreadReader:
    control = log.read_control(cluster.layout)
    return ThreadReader("rac", cluster.layout, thread, control, log.Place(sequence, log.BLOCK), slice_max)


def rest(thread: ThreadReader) -> list[log.Lwn | LogEnd]:
    found = []
    while (each := thread.next()) is not None:
        found.append(each)
    return found


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0xFF
    path.write_bytes(content)


def test_an_lwn_that_is_half_written_is_not_there_yet(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    committed(cluster, 1, 1)
    transaction = cluster.begin(1)
    cluster.insert(transaction, "BANK.ACCOUNTS", (2, 1, 3, 4))
    thread = reader(cluster)
    assert len(rest(thread)) == 1
    place = thread.place
    for keep in (1, 20, log.LWN_HEAD_BYTES, 60, 10_000):
        cluster.tear(1, keep)
        assert thread.next() is None
        assert thread.place == place
    cluster.flush(1)
    lwn = thread.next()
    assert isinstance(lwn, log.Lwn)
    assert lwn.records == 2


def test_a_torn_lwn_of_any_length_does_not_lead_astray(tmp_path: Path) -> None:
    """A torn header may say any length, also one beyond the file."""
    cluster = new_cluster(tmp_path, 1)
    thread = reader(cluster)
    path = cluster.layout.online(1, 1)
    head = log.LWN_HEAD.pack(log.LWN_MAGIC, 1, 1, 1, 1 << 30, (1 << 32) - 1)
    path.write_bytes(path.read_bytes() + head + b"\0" * 100)
    assert thread.next() is None
    committed(cluster, 1, 1)
    assert len(rest(thread)) == 1


def test_a_wrong_byte_in_a_closed_log_is_an_error_that_says_where(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    committed(cluster, 1, 1)
    second = cluster.instances[1].offset
    committed(cluster, 1, 2)
    cluster.switch(1)
    flip(cluster.layout.online(1, 1), second + 50)
    thread = reader(cluster)
    assert isinstance(thread.next(), log.Lwn)
    with pytest.raises(LogCorruptError, match="checksum") as caught:
        thread.next()
    assert caught.value.thread == 1
    assert caught.value.position == f"sequence 1 offset {second} record 0"


def test_a_wrong_byte_in_an_archived_log_is_an_error(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    committed(cluster, 1, 1)
    cluster.switch(1)
    cluster.switch(1)
    flip(cluster.layout.archive(1, 1), log.BLOCK + 50)
    with pytest.raises(LogCorruptError):
        rest(reader(cluster))


def test_an_archived_log_that_is_too_short_is_an_error(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    committed(cluster, 1, 1)
    cluster.switch(1)
    cluster.switch(1)
    path = cluster.layout.archive(1, 1)
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(LogCorruptError, match="ends inside"):
        rest(reader(cluster))


def test_switches_are_followed_and_next_scn_is_the_next_first(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1)
    committed(cluster, 1, 1)
    cluster.switch(1)
    transaction = cluster.begin(1)
    cluster.insert(transaction, "BANK.ACCOUNTS", (2, 1, 3, 4))
    cluster.flush(1)
    first, end, second = rest(reader(cluster))
    assert isinstance(first, log.Lwn)
    assert isinstance(end, LogEnd)
    assert isinstance(second, log.Lwn)
    # the next log's first record carries exactly the next SCN
    assert log.ENTRY.unpack_from(second.entries)[0] == end.next_scn == second.scn


def test_an_overwritten_online_log_is_read_from_the_archive(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    committed(cluster, 1, 1)
    thread = reader(cluster)
    assert len(rest(thread)) == 1
    committed(cluster, 1, 2)
    for _ in range(4):
        cluster.switch(1)
    # the file that it has open now holds another log
    found = rest(thread)
    assert isinstance(found[0], log.Lwn)
    assert found[0].sequence == 1
    assert [each.sequence for each in found if isinstance(each, LogEnd)] == [1, 2, 3, 4]


def test_a_log_that_is_gone_is_a_gap_with_its_thread_and_sequence(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 2, groups=2)
    for _ in range(4):
        cluster.switch(2)
    cluster.delete_archives(2, below=3)
    assert not log_there(cluster.layout, 2, 2, 2)
    assert log_there(cluster.layout, 2, 2, 3)
    with pytest.raises(LogGapError, match="log 1 of thread 2 is neither online nor archived") as caught:
        reader(cluster, thread=2).next()
    assert caught.value.thread == 2
    assert "restore thread_2_seq_1.log" in str(caught.value)


def test_a_log_of_another_incarnation_thread_or_sequence_is_refused(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 1, groups=2)
    for _ in range(4):
        cluster.switch(1)
    path = cluster.layout.archive(1, 1)
    head = log.unpack_header(path.read_bytes())
    assert head is not None
    for wrong, error in (
        (head._replace(resetlogs=9), IncarnationError),
        (head._replace(database=9), IncarnationError),
        (head._replace(thread=9), LogGapError),
        (head._replace(sequence=9), LogGapError),
    ):
        path.write_bytes(log.pack_header(wrong))
        with pytest.raises(error):
            reader(cluster).next()


@pytest.mark.parametrize("slice_max", [1, 100, 1 << 20])
def test_any_slice_gives_the_same(tmp_path: Path, slice_max: int) -> None:
    cluster = new_cluster(tmp_path, 1, log_bytes=3000)
    for number in range(30):
        committed(cluster, 1, *range(number))
    assert sum(each.records for each in rest(reader(cluster, slice_max=slice_max)) if isinstance(each, log.Lwn))
    assert rest(reader(cluster, slice_max=slice_max)) == rest(reader(cluster))


def test_overwritten_before_it_was_read_loses_nothing(tmp_path: Path) -> None:
    cluster = new_cluster(tmp_path, 2, groups=2, log_bytes=2000)
    runtime = Runtime(tmp_path, read_bytes=1000)
    runtime.poll()
    for number in range(60):
        committed(cluster, 1 + number % 2, number, number + 1)
        if number % 20 == 0:
            runtime.poll()
    cluster.heartbeat()
    cluster.heartbeat()
    runtime.drain()
    assert cluster.instances[1].sequence > 4
    check_all(runtime, cluster.history)
