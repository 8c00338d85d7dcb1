"""The reader of one thread: online logs while they are written, log switches, overwritten logs, the archive, gaps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.support.oracle_logs import (
    CONTAINER,
    IDENTITY,
    OBJECT,
    MadeLog,
    MadeLwn,
    begin,
    commit,
    filler,
    real_logs,
    record,
    row_pair,
    seal,
)

from lowwater.errors import (
    IncarnationError,
    LogCorruptError,
    LogGapError,
    LogUnknownError,
    SourceLostError,
    StartRefusedError,
)
from lowwater_extractor.sources.oracle.redo.codes import ROW
from lowwater_extractor.sources.oracle.redo.events import Captured, Lwn
from lowwater_extractor.sources.oracle.redo.files import LogDirectories
from lowwater_extractor.sources.oracle.redo.layout import Format, Place
from lowwater_extractor.sources.oracle.redo.reader import LogEnd, ThreadReader
from lowwater_extractor.sources.oracle.scn import Scn

MINE = Captured.of([(CONTAINER, OBJECT)])
XID = (10, 12, 572)


def lwn(scn: int, size: int = 60) -> MadeLwn:
    """With a commit in it, so that it is not passed over."""
    return MadeLwn(scn, [record(scn, commit((1, 1, scn))), filler(scn, size)])


@dataclass
class Bench:
    """Directories with logs, and a reader over them."""

    root: Path

    def __post_init__(self) -> None:
        self.online, self.archive = self.root / "online", self.root / "archive"
        self.online.mkdir()
        self.archive.mkdir()

    def files(self) -> LogDirectories:
        return LogDirectories("orders", IDENTITY, [self.online], [self.archive])

    def reader(
        self, sequence: int = 15, offset: int = 0, captured: Captured = MINE, slice_max: int = 1 << 16
    ) -> ThreadReader:
        return ThreadReader("orders", 1, IDENTITY, self.files(), captured, Place(sequence, offset), slice_max=slice_max)

    def put(self, name: str, data: bytes) -> None:
        """Online, in place, as the log writer does."""
        path = self.online / name
        if not path.exists():
            path.write_bytes(data)
            return
        with path.open("r+b") as file:
            file.write(data)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def scns(reader: ThreadReader) -> list[int | LogEnd]:
    """All that is there now."""
    found: list[int | LogEnd] = []
    while (one := reader.next()) is not None:
        found.append(one.scn if isinstance(one, Lwn) else one)
    return found


OPEN = MadeLog(next_scn=None)
CLOSED = MadeLog(next_scn=50)


# --- online


def test_a_log_is_read_while_it_is_written(bench: Bench) -> None:
    reader = bench.reader()
    assert reader.next() is None
    lwns = [lwn(10), lwn(20, 2000), lwn(30)]
    whole = OPEN.pack(lwns, 20)
    blank = OPEN.pack([], 30)
    bench.put("redo01.log", blank)
    assert scns(reader) == []
    seen: list[int | LogEnd] = []
    for blocks in range(2, len(whole) // 512):
        bench.put("redo01.log", whole[: blocks * 512])
        seen += scns(reader)
        assert seen == [one.scn for one, end in zip(lwns, (3, 8, 9), strict=True) if end <= blocks]
    bench.put("redo01.log", CLOSED.pack(lwns)[:1024])
    assert scns(reader) == [LogEnd(15, Scn(50))]
    assert reader.place == Place(16, 0)


@pytest.mark.parametrize("broken", ["torn", "zero", "older", "number", "bit"])
@pytest.mark.parametrize("block", [2, 3, 5])
def test_a_block_that_is_half_written_is_read_again_and_never_taken(bench: Bench, broken: str, block: int) -> None:
    whole = OPEN.pack([lwn(10, 1500), lwn(20)], 4)
    data = bytearray(whole)
    at = block * 512
    if broken == "torn":
        data[at + 256 : at + 511] = b"\x55" * 255
    elif broken == "zero":
        data[at : at + 512] = bytes(512)
    elif broken == "older":
        data[at : at + 512] = seal(whole[at : at + 512], block, 12, Format())
    elif broken == "number":
        data[at : at + 512] = seal(whole[at : at + 512], block + 100, 15, Format())
    else:
        data[at + 300] ^= 4
    bench.put("redo01.log", bytes(data))
    reader = bench.reader()
    assert scns(reader) == []
    bench.put("redo01.log", whole)
    assert scns(reader) == [10, 20]


def test_the_same_blocks_in_a_closed_log_are_damage(bench: Bench) -> None:
    data = bytearray(CLOSED.pack([lwn(10), lwn(20)]))
    data[3 * 512 + 300] ^= 4
    bench.put("redo01.log", bytes(data))
    reader = bench.reader()
    assert isinstance(reader.next(), Lwn)
    with pytest.raises(LogCorruptError, match=r"closed log: block 3: its checksum is wrong") as caught:
        reader.next()
    assert (caught.value.source, caught.value.thread) == ("orders", 1)
    assert caught.value.position == "sequence 15 offset 1536 record 0"


def test_a_closed_log_that_ends_inside_an_lwn(bench: Bench) -> None:
    data = CLOSED.pack([lwn(10), lwn(20, 2000)])
    short = CLOSED.headers(5, 5) + data[1024 : 5 * 512]
    bench.put("redo01.log", short)
    reader = bench.reader()
    assert isinstance(reader.next(), Lwn)
    with pytest.raises(LogCorruptError, match="runs over the end of the log"):
        reader.next()


def test_what_an_older_round_left_behind_the_end_is_not_read(bench: Bench) -> None:
    old = MadeLog(sequence=12, next_scn=9).pack([lwn(n) for n in range(1, 9)])
    bench.put("redo01.log", old)
    bench.put("redo01.log", OPEN.pack([lwn(10)]))
    reader = bench.reader()
    assert scns(reader) == [10]
    bench.put("redo01.log", CLOSED.headers(3, 10))
    assert scns(reader) == [LogEnd(15, Scn(50))]


def test_the_last_lwns_that_were_written_before_the_switch(bench: Bench) -> None:
    """The data may have been read before the log was closed, and the header after."""
    bench.put("redo01.log", OPEN.pack([lwn(10)], 10))
    reader = bench.reader()
    assert scns(reader) == [10]
    bench.put("redo01.log", CLOSED.pack([lwn(10), lwn(20)]))
    bench.put("redo02.log", MadeLog(sequence=16, next_scn=None, first_scn=50).pack([lwn(50)], 3))
    assert scns(reader) == [20, LogEnd(15, Scn(50)), 50]


def test_a_log_that_was_switched_but_whose_successor_has_not_begun(bench: Bench) -> None:
    bench.put("redo01.log", CLOSED.pack([lwn(10)]))
    reader = bench.reader()
    assert scns(reader) == [10, LogEnd(15, Scn(50))]
    assert scns(reader) == []
    bench.put("redo02.log", MadeLog(sequence=16, next_scn=None).pack([lwn(60)], 3))
    assert scns(reader) == [60]


def test_a_header_that_does_not_check(bench: Bench) -> None:
    data = bytearray(CLOSED.pack([lwn(10)]))
    reader = bench.reader()
    bench.put("redo01.log", bytes(data))
    data[600] ^= 1
    path = bench.online / "redo01.log"

    class Files(LogDirectories):
        def find_online(self, thread: int, sequence: int) -> Path | None:
            return path

    path.write_bytes(bytes(data))
    reader = ThreadReader("orders", 1, IDENTITY, Files("orders", IDENTITY, [], []), MINE, Place(15, 0))
    with pytest.raises(LogCorruptError, match="block 1: its checksum is wrong"):
        reader.next()


def test_an_lwn_that_is_larger_than_a_slice(bench: Bench) -> None:
    bench.put("redo01.log", CLOSED.pack([lwn(10), lwn(20, 100_000), lwn(30)]))
    assert scns(bench.reader(slice_max=2048)) == [10, 20, 30, LogEnd(15, Scn(50))]


def test_a_group_of_lwns_is_taken_when_all_are_there(bench: Bench) -> None:
    parts = [lwn(10 + n, 1000)._replace(number=n, members=3) for n in range(3)]
    whole = OPEN.pack(parts, 3)
    used = len(whole) // 512 - 3
    bench.put("redo01.log", OPEN.pack([], 20))
    reader = bench.reader(slice_max=1024)
    for blocks in range(2, used):
        bench.put("redo01.log", whole[: blocks * 512])
        assert scns(reader) == []
    bench.put("redo01.log", whole)
    (found,) = [reader.next()]
    assert isinstance(found, Lwn)
    assert (found.scn, found.upper, len(found.events), found.end) == (10, 13, 3, used * 512)


# --- overwritten, archived, missing


def test_an_overwritten_log_goes_on_from_the_archive(bench: Bench) -> None:
    lwns = [lwn(10), lwn(20, 1500), lwn(30), lwn(40)]
    bench.put("redo01.log", OPEN.pack(lwns[:2], 10))
    reader = bench.reader()
    assert scns(reader) == [10, 20]
    (bench.archive / "any_name").write_bytes(CLOSED.pack(lwns))
    bench.put("redo01.log", MadeLog(sequence=18, next_scn=None).pack([lwn(90)], 5))
    for sequence in (16, 17):
        log = MadeLog(sequence=sequence, first_scn=50 + sequence, next_scn=51 + sequence)
        (bench.archive / f"x{sequence}").write_bytes(log.pack([lwn(50 + sequence)]))
    expected = [30, 40, LogEnd(15, Scn(50)), 66, LogEnd(16, Scn(67)), 67, LogEnd(17, Scn(68)), 90]
    assert scns(reader) == expected


def test_a_closed_log_that_is_being_overwritten(bench: Bench) -> None:
    """Its new header is there, and a block is half written: that is no damage, the rest is in the archive."""
    lwns = [lwn(10), lwn(20), lwn(30)]
    data = bytearray(CLOSED.pack(lwns, 2))
    bench.put("redo01.log", bytes(data))
    reader = bench.reader(slice_max=512)
    first = reader.next()
    assert isinstance(first, Lwn)
    (bench.archive / "a").write_bytes(CLOSED.pack(lwns))
    data[3 * 512 + 100 : 4 * 512] = b"\x55" * 412
    data[:1024] = MadeLog(sequence=18, next_scn=None).headers(2, 7)
    bench.put("redo01.log", bytes(data))
    for expected in (20, 30, LogEnd(15, Scn(50))):
        found = reader.next()
        assert (found.scn if isinstance(found, Lwn) else found) == expected
    with pytest.raises(LogGapError, match="log 16 of thread 1"):
        reader.next()


def test_the_archive_is_missing(bench: Bench) -> None:
    bench.put("redo01.log", OPEN.pack([lwn(10)], 10))
    reader = bench.reader()
    assert scns(reader) == [10]
    bench.put("redo01.log", MadeLog(sequence=18, next_scn=None).pack([lwn(90)], 5))
    with pytest.raises(LogGapError, match="log 15 of thread 1 is neither online nor archived") as caught:
        reader.next()
    assert caught.value.position == "sequence 15 offset 1536 record 0"
    assert "sequence 15 of thread 1" in str(caught.value.hint)


def test_a_gap_in_the_archive_alone(bench: Bench) -> None:
    def archive(sequence: int) -> None:
        data = MadeLog(sequence=sequence, next_scn=99).pack([lwn(50 + sequence)])
        (bench.archive / f"arch_{sequence}").write_bytes(data)

    archive(15)
    reader = bench.reader()
    assert scns(reader) == [65, LogEnd(15, Scn(99))]
    # archivers work side by side: the next but one may be there first
    archive(17)
    assert scns(reader) == []
    archive(18)
    with pytest.raises(LogGapError, match="log 16 of thread 1"):
        reader.next()
    archive(16)
    assert scns(reader) == [66, LogEnd(16, Scn(99)), 67, LogEnd(17, Scn(99)), 68, LogEnd(18, Scn(99))]


def test_a_position_ahead_of_the_database(bench: Bench) -> None:
    bench.put("redo01.log", OPEN.pack([lwn(10)], 10))
    assert bench.reader(16).next() is None
    with pytest.raises(LogGapError, match="log 17 of thread 1 is expected, but the database is at 15"):
        bench.reader(17).next()


def test_an_archived_log_that_is_cut_short(bench: Bench) -> None:
    data = CLOSED.pack([lwn(10), lwn(20)])
    path = bench.archive / "a"
    for size in (len(data) - 1, len(data) - 512, 1024):
        path.write_bytes(data[:size])
        with pytest.raises(LogCorruptError, match=f"cut short: {size} of {len(data)} bytes"):
            bench.reader().next()
    # another copy that is whole is taken instead
    (bench.archive / "b").write_bytes(data)
    assert scns(bench.reader()) == [10, 20, LogEnd(15, Scn(50))]


def test_an_archived_log_that_was_still_written(bench: Bench) -> None:
    (bench.archive / "a").write_bytes(OPEN.pack([lwn(10)]))
    with pytest.raises(LogGapError, match="is not closed"):
        bench.reader().next()


def test_another_incarnation_is_not_mixed_in(bench: Bench) -> None:
    older = MadeLog(identity=IDENTITY._replace(resetlogs=7))
    (bench.archive / "old").write_bytes(older.pack([lwn(10)]))
    assert bench.reader().next() is None
    bench.put("redo01.log", older.pack([lwn(10)]))
    with pytest.raises(IncarnationError, match=r"opened with resetlogs \(1224959854 → 7\)"):
        bench.reader().next()
    bench.put("redo02.log", CLOSED.pack([lwn(10)]))
    assert scns(bench.reader()) == [10, LogEnd(15, Scn(50))]


def test_archived_log_of_a_newer_incarnation_stops_the_source(bench: Bench) -> None:
    """Where only the archive is read nothing else would tell: the old incarnation has no more logs."""
    newer = MadeLog(identity=IDENTITY._replace(resetlogs=IDENTITY.resetlogs + 1))
    (bench.archive / "new").write_bytes(newer.pack([lwn(10)]))
    with pytest.raises(IncarnationError, match=r"opened with resetlogs \(1224959854 → 1224959855\)"):
        bench.reader().next()


@pytest.mark.parametrize("where", ["online", "archive"])
def test_log_of_a_thread_that_the_config_does_not_name_is_refused(bench: Bench, where: str) -> None:
    (bench.root / where / "other").write_bytes(MadeLog(thread=2, next_scn=50).pack([lwn(10)]))
    files = LogDirectories("orders", IDENTITY, [bench.online], [bench.archive], [1])
    with pytest.raises(StartRefusedError, match="a log of redo thread 2, and `threads` names 1"):
        ThreadReader("orders", 1, IDENTITY, files, MINE, Place(15, 0)).next()


@pytest.mark.parametrize(
    ("log", "error", "what"),
    [
        (MadeLog(sequence=14), LogGapError, "contains log 14 of thread 1"),
        (MadeLog(thread=2), LogGapError, "contains log 15 of thread 2"),
        (MadeLog(identity=IDENTITY._replace(resetlogs=7)), IncarnationError, "1497016494.7"),
    ],
)
@pytest.mark.parametrize("archived", [False, True])
def test_files_that_hold_another_log(
    tmp_path: Path, log: MadeLog, error: type[Exception], what: str, archived: bool
) -> None:
    path = tmp_path / "log"
    path.write_bytes(log.pack([lwn(10)]))

    class Files:
        """A list that is not right."""

        def find_online(self, thread: int, sequence: int) -> Path | None:
            return None if archived else path

        def find_archived(self, thread: int, sequence: int) -> Path | None:
            return path if archived else None

        def current_sequence(self, thread: int) -> int | None:
            return None

    reader = ThreadReader("orders", 1, IDENTITY, Files(), MINE, Place(15, 0))
    with pytest.raises(error) as caught:
        reader.next()
    assert what in str(caught.value)
    assert "source orders, thread 1, position sequence 15" in str(caught.value)


def test_a_directory_that_is_not_there(bench: Bench) -> None:
    bench.archive.rmdir()
    with pytest.raises(SourceLostError, match="cannot be read"):
        bench.reader().next()


def test_what_lies_beside_the_logs_is_not_seen(bench: Bench) -> None:
    (bench.archive / "readme").write_text("hello")
    (bench.archive / "empty").write_bytes(b"")
    (bench.archive / "folder").mkdir()
    (bench.archive / "15").write_bytes(CLOSED.pack([lwn(10)]))
    assert scns(bench.reader()) == [10, LogEnd(15, Scn(50))]


# --- positions


def test_it_goes_on_at_any_lwn(bench: Bench) -> None:
    bench.put("redo01.log", CLOSED.pack([lwn(10), lwn(20, 1500), lwn(30)]))
    reader = bench.reader()
    places = [reader.place]
    while isinstance(reader.next(), Lwn):
        places.append(reader.place)
    for done, place in enumerate(places):
        assert scns(bench.reader(place.sequence, place.offset)) == [*[10, 20, 30][done:], LogEnd(15, Scn(50))]


@pytest.mark.parametrize("offset", [512, 1025, 4096 * 512])
def test_an_offset_that_the_log_does_not_have(bench: Bench, offset: int) -> None:
    bench.put("redo01.log", CLOSED.pack([lwn(10)]))
    with pytest.raises(LogCorruptError, match=f"offset {offset} is not in this log"):
        bench.reader(offset=offset).next()


def test_an_offset_inside_an_lwn(bench: Bench) -> None:
    bench.put("redo01.log", CLOSED.pack([lwn(10, 3000)]))
    with pytest.raises(LogCorruptError, match="no LWN begins here"):
        bench.reader(offset=3 * 512).next()


@pytest.mark.parametrize("form", [Format(order, size) for order in "<>" for size in (512, 1024, 4096)], ids=str)
def test_every_block_size_and_byte_order(bench: Bench, form: Format) -> None:
    lwns = [MadeLwn(10, [record(10, begin(XID, form=form), *row_pair(XID, form=form)), filler(10, 5000, form)])]
    bench.put("redo01.log", MadeLog(form=form, next_scn=50).pack(lwns))
    reader = bench.reader()
    found = reader.next()
    assert isinstance(found, Lwn)
    assert found.offset == 2 * form.block_size
    assert [event[2] for event in found.events][1:] == [ROW | 0x0B02]
    assert reader.next() == LogEnd(15, Scn(50))


def test_other_objects_are_captured_from_a_place_on(bench: Bench) -> None:
    lwns = [MadeLwn(scn, [record(scn, *row_pair(XID, number=99))]) for scn in (10, 20, 30)]
    bench.put("redo01.log", CLOSED.pack([lwn(5), *lwns]))
    reader = bench.reader()
    first = reader.next()
    assert isinstance(first, Lwn)
    more = Captured.of([(CONTAINER, OBJECT), (CONTAINER, 99)])
    reader.capture(more)
    assert scns(reader) == [10, 20, 30, LogEnd(15, Scn(50))]
    reader = bench.reader()
    assert [reader.next() is not None for _ in range(2)] == [True, True]
    reader.capture(more, first.end + 512)
    assert scns(reader) == [20, 30, LogEnd(15, Scn(50))]


def test_what_comes_before_an_error_is_handed_over_first(bench: Bench) -> None:
    bad = MadeLwn(30, [record(30, *row_pair(XID, opcode=0x0B07))])
    bench.put("redo01.log", CLOSED.pack([lwn(10), lwn(20), bad, lwn(40)]))
    reader = bench.reader()
    assert [reader.next() is not None for _ in range(2)] == [True, True]
    for _ in range(2):
        with pytest.raises(LogUnknownError, match=r"11\.7"):
            reader.next()


# --- the real log as if it were online


def test_the_real_log_block_by_block(bench: Bench) -> None:
    """Each block as it is written: the same LWNs as at once, and none before its last block."""
    data = real_logs().second.read_bytes()
    header = bytearray(data[:1024])
    header[512 + 156 : 512 + 160] = b"\xff" * 4
    header[512 + 192 : 512 + 200] = b"\xff" * 8
    still_open = bytes(header[:512]) + seal(bytes(header[512:]), 1, 16, Format())
    bench.put("redo01.log", still_open + bytes(len(data) - 1024))
    reader = bench.reader(16)
    seen: list[int | LogEnd] = []
    for block in range(2, 10):
        assert seen == ([2267717] if block > 6 else [])
        bench.put("redo01.log", still_open + data[1024 : (block + 1) * 512])
        seen += scns(reader)
    assert seen == [2267717, 2267720]
    bench.put("redo01.log", data)
    assert scns(reader) == [LogEnd(16, Scn(2267723))]
