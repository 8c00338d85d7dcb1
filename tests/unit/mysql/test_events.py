"""Events by hand: what becomes a transaction, where reading goes on, and what stops a source."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from tests.unit.mysql.binlog import ITEMS, SECONDS, SERVER, UTF8MB4, Fed, Log, item, packed, row, table_map

from lowwater.errors import CodecError, LogCorruptError, LogGapError, LogUnknownError
from lowwater.records.positions import Order
from lowwater_extractor.sources.mysql.position import PendingGtids, Place, Resume
from lowwater_extractor.sources.mysql.wire import events as ev
from lowwater_extractor.sources.mysql.wire import table_map as tm


def _inserted(log: Log, number: int, *, gtid: int | None = None) -> str:
    name = log.gtid(gtid)
    log.query("BEGIN")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(number, f"item {number}"))
    log.xid()
    return name


def _ids(found: list) -> list[list[int]]:  # type: ignore[type-arg]
    return [[(change.after or change.before)[0] for change in transaction.changes] for transaction in found]


@pytest.fixture
def log() -> Log:
    made = Log()
    made.begin()
    return made


@pytest.mark.parametrize("checksums", [True, False])
def test_a_group_is_a_transaction_with_its_gtid_and_its_commit_time(tmp_path: Path, checksums: bool) -> None:
    log = Log(checksums=checksums)
    log.begin()
    name = log.gtid(7, micros=1_700_000_000_123_456)
    log.query("BEGIN")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(1, "a") + item(2, None))
    log.rows(ev.UPDATE_ROWS, 70, 2, item(1, "a") + item(1, "b"))
    log.rows(ev.DELETE_ROWS, 70, 2, item(2, None))
    log.xid()
    fed = Fed(tmp_path)
    fed.assembler.feed_all(log.take())
    (transaction,) = fed.assembler.committed
    assert (transaction.txid, transaction.order, transaction.commit_ts_us) == (
        name, Order(101, 1), 1_700_000_000_123_456
    )  # fmt: skip
    changes = [fed.encoders.change(frame) for frame in transaction.changes]
    assert [(c.op, c.before, c.after) for c in changes] == [
        ("c", None, {"id": 1, "name": "a"}),
        ("c", None, {"id": 2, "name": None}),
        ("u", {"id": 1, "name": "a"}, {"id": 1, "name": "b"}),
        ("d", {"id": 2, "name": None}, None),
    ]
    place = fed.assembler.resume.place
    assert place == Place("binlog.000001", log.at, f"{SERVER}:7")


def test_rows_of_the_older_form_are_read_too(tmp_path: Path, log: Log) -> None:
    log.anonymous()
    log.query("BEGIN")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS_1, 70, 2, item(1, "a"))
    log.rows(ev.UPDATE_ROWS_1, 70, 2, item(1, "a") + item(1, "b"))
    log.rows(ev.DELETE_ROWS_1, 70, 2, item(1, "b"))
    log.query("COMMIT")
    fed = Fed(tmp_path, resume=Resume(5, Place("binlog.000001", 4), "x"))
    (transaction,) = fed.feed(log)
    assert [change.op for change in transaction.changes] == ["c", "u", "d"]
    assert transaction.txid == f"binlog.000001:{log.at}"


def test_mariadb_needs_no_begin_and_says_where_a_statement_stands_alone(tmp_path: Path, log: Log) -> None:
    first = log.maria_gtid(41)
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS_1, 70, 2, item(1, "a"))
    log.xid()
    log.maria_gtid(42, flags=1)
    log.query("CREATE TABLE t (a int)")
    fed = Fed(tmp_path, resume=Resume(0, Place("binlog.000001", 4, "0-1-40"), "x"), is_mariadb=True)
    (transaction,) = fed.feed(log)
    assert transaction.txid == first
    assert fed.assembler.count == 2
    assert fed.assembler.resume.place.gtids == "0-1-42"


def test_every_group_counts_whether_it_is_captured_or_not(tmp_path: Path, log: Log) -> None:
    for number in range(1, 4):
        _inserted(log, number)
    fed = Fed(tmp_path, tables=["other.*"])
    assert fed.feed(log) == []
    assert fed.assembler.count == 103


def test_a_place_is_behind_a_whole_group_never_inside_of_one(tmp_path: Path, log: Log) -> None:
    _inserted(log, 1)
    at = log.at
    log.gtid()
    log.query("BEGIN")
    log.table(ITEMS)
    fed = Fed(tmp_path)
    fed.feed(log)
    assert fed.assembler.resume.place.position == at
    assert fed.assembler.is_inside


def test_positions_beyond_four_bytes_go_on(tmp_path: Path) -> None:
    log = Log(at=(1 << 32) - 400)
    log.begin()
    for number in range(1, 5):
        _inserted(log, number)
    fed = Fed(tmp_path, resume=Resume(0, Place("binlog.000001", (1 << 32) - 400, ""), "x"))
    fed.feed(log)
    assert log.at > 1 << 32
    assert fed.assembler.resume.place.position == log.at


def test_the_next_file_is_gone_on_with(tmp_path: Path, log: Log) -> None:
    _inserted(log, 1)
    log.rotate("binlog.000002")
    fed = Fed(tmp_path)
    fed.feed(log)
    assert fed.assembler.resume.place.file == "binlog.000002"
    assert fed.assembler.resume.place.position == 4
    log.format()
    _inserted(log, 2)
    assert _ids(fed.feed(log)) == [[2]]


def test_a_heartbeat_moves_the_place_but_not_inside_of_a_group(tmp_path: Path, log: Log) -> None:
    fed = Fed(tmp_path)
    fed.feed(log)
    log.at = 9_000
    log.event(ev.HEARTBEAT, b"binlog.000001", seconds=0)
    fed.feed(log)
    assert fed.assembler.resume.place.position >= 9_000


# -- wrong ones --------------------------------------------------------------------------------------------


def test_a_wrong_checksum_stops_the_source(tmp_path: Path, log: Log) -> None:
    _inserted(log, 1)
    wrong = bytearray(log.events[-2])
    wrong[30] ^= 1
    log.events[-2] = bytes(wrong)
    with pytest.raises(LogCorruptError, match="checksum") as refused:
        Fed(tmp_path).feed(log)
    assert refused.value.position


def test_an_unknown_event_stops_the_source_with_its_bytes_unless_it_may_be_ignored(tmp_path: Path, log: Log) -> None:
    log.event(99, b"\x01\x02", flags=0x80)
    fed = Fed(tmp_path)
    fed.feed(log)
    log.event(99, b"\x01\x02")
    with pytest.raises(LogUnknownError, match=r"kind 99.*01 02"):
        fed.feed(log)


@pytest.mark.parametrize(
    ("kind", "what"),
    [(ev.PARTIAL_UPDATE_ROWS, "parts of JSON"), (ev.INCIDENT, "incident")],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, log: Log, kind: int, what: str) -> None:
    log.event(kind, bytes(20))
    with pytest.raises((LogUnknownError, LogGapError), match=what) as refused:
        Fed(tmp_path).feed(log)
    assert refused.value.hint


def test_a_log_that_contradicts_itself_stops_the_source(tmp_path: Path) -> None:
    def gtid_inside(log: Log) -> None:
        log.gtid()
        log.query("BEGIN")
        log.gtid()

    def rows_outside(log: Log) -> None:
        log.table(ITEMS)
        log.rows(ev.WRITE_ROWS, 70, 2, item(1, "a"))

    def rows_unnamed(log: Log) -> None:
        log.gtid()
        log.query("BEGIN")
        log.rows(ev.WRITE_ROWS, 71, 2, item(1, "a"))

    def cut_off(log: Log) -> None:
        log.gtid()
        log.query("BEGIN")
        log.event(ev.TABLE_MAP, ITEMS[:20])

    def commit_outside(log: Log) -> None:
        log.xid()

    for wrong in (gtid_inside, rows_outside, rows_unnamed, cut_off, commit_outside):
        log = Log()
        log.begin()
        wrong(log)
        with pytest.raises(LogCorruptError):
            Fed(tmp_path).feed(log)


def test_rows_that_do_not_fit_their_event_stop_the_source(tmp_path: Path, log: Log) -> None:
    log.gtid()
    log.query("BEGIN")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(1, "abc")[:-1])
    with pytest.raises(CodecError, match=r"shop\.items"):
        Fed(tmp_path).feed(log)


# -- compressed --------------------------------------------------------------------------------------------


def _deflated(data: bytes) -> bytes:
    return bytes([0x80 | 2]) + len(data).to_bytes(2, "big") + zlib.compress(data)


#: of MySQL 9.7.4, behind the header
_TAGGED = bytes.fromhex(
    "027a000000027103b4f903a9038903510322c5031d02ce04f103000000020404060a6d79746167"
    "08f1040af9040c7f66cdd2108160061089041283120b"
)


def test_a_gtid_with_a_tag_names_its_transaction(tmp_path: Path, log: Log) -> None:
    log.event(ev.GTID_TAGGED, _TAGGED)
    log.query("BEGIN")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(1, "a"))
    log.xid()
    fed = Fed(tmp_path)
    (found,) = fed.feed(log)
    assert found.txid == "dc5afeea-e2d4-11f1-8767-02fc00000001:mytag:1"
    assert fed.assembler.resume.place.gtids == found.txid
    for damaged in (_TAGGED[:-3], b"\x04" + _TAGGED[1:], _TAGGED[:3]):
        log.event(ev.GTID_TAGGED, damaged)
        with pytest.raises((LogUnknownError, LogCorruptError)):
            Fed(tmp_path).feed(log)
        log.begin()


def test_mariadbs_compressed_events_are_read_as_what_they_stand_for(tmp_path: Path, log: Log) -> None:
    log.maria_gtid(1)
    log.table(ITEMS)
    head = (70).to_bytes(6, "little") + b"\x01\x00" + b"\x02"
    log.event(166, head + b"\xff" + _deflated(item(1, "a") + item(2, "b")))
    log.event(167, head + b"\xff\xff" + _deflated(item(1, "a") + item(1, "c")))
    log.event(168, head + b"\xff" + _deflated(item(2, "b")))
    body = struct.pack("<IIBHH", 7, 0, 4, 0, 0) + b"shop\x00"
    log.event(ev.QUERY_COMPRESSED, body + _deflated(b"COMMIT"))
    fed = Fed(tmp_path, resume=Resume(0, Place("binlog.000001", 4, ""), "x"), is_mariadb=True)
    (transaction,) = fed.feed(log)
    assert [change.op for change in transaction.changes] == ["c", "c", "u", "d"]


def _compressed(log: Log, inner: Log) -> str:
    data = b"".join(inner.take())
    squeezed = pa.Codec("zstd").compress(data, asbytes=True)
    name = log.gtid()
    size = b"\xfe" + len(data).to_bytes(8, "little")
    log.event(ev.TRANSACTION_PAYLOAD, b"\x02\x01\x00" + b"\x03\x09" + size + b"\x00" + squeezed)
    return name


def test_a_compressed_transaction_is_unpacked_as_a_stream_and_spilled(tmp_path: Path, log: Log) -> None:
    """64 MB of rows in some kilobytes: no more than the limits of memory are held at once."""
    inner = Log(checksums=False)
    inner.query("BEGIN")
    inner.table(table_map(71, "wide", [(tm.LONG, b""), (tm.BLOB, b"\x03")], names=["id", "text"], collations=[UTF8MB4]))
    text = (1 << 20).to_bytes(3, "little") + b"x" * (1 << 20)
    for number in range(64):
        inner.rows(ev.WRITE_ROWS, 71, 2, row(struct.pack("<i", number), text))
    inner.xid()
    name = _compressed(log, inner)
    assert log.at < 1 << 20
    fed = Fed(tmp_path, bytes_max=4 << 20)
    events = log.take()
    tracemalloc.start()
    try:
        fed.assembler.feed_all(events)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    (transaction,) = fed.assembler.committed
    assert peak < 24 << 20
    assert (transaction.txid, transaction.count) == (name, 64)
    assert sum(len(body) for _, body in transaction.changes) > 64 << 20


@pytest.mark.parametrize("cut", [1, 5, 40])
def test_a_compressed_transaction_that_is_cut_off_is_refused(tmp_path: Path, log: Log, cut: int) -> None:
    inner = Log(checksums=False)
    inner.query("BEGIN")
    inner.xid()
    inner.events[-1] = inner.events[-1][:-1] if cut == 1 else inner.events[-1]
    _compressed(log, inner)
    if cut > 1:
        body = log.events[-1][ev.HEADER : -4]
        log.events.pop()
        log.event(ev.TRANSACTION_PAYLOAD, body[:-cut] if cut < 40 else body[:5] + b"\xff" + body[6:])
    with pytest.raises(LogCorruptError):
        Fed(tmp_path).feed(log)


def test_a_compressed_event_of_mariadb_that_has_more_than_it_says_is_refused(tmp_path: Path, log: Log) -> None:
    log.maria_gtid(1)
    log.table(ITEMS)
    head = (70).to_bytes(6, "little") + b"\x01\x00" + b"\x02"
    data = item(1, "a" * 70)
    log.event(166, head + b"\xff" + b"\x81" + bytes([len(data) - 9]) + zlib.compress(data))
    with pytest.raises(LogCorruptError, match="compressed event"):
        Fed(tmp_path, resume=Resume(0, Place("binlog.000001", 4, ""), "x"), is_mariadb=True).feed(log)


def test_a_compressed_transaction_of_mysql_is_read(tmp_path: Path, log: Log) -> None:
    inner = Log(checksums=False)
    inner.query("BEGIN")
    inner.table(ITEMS)
    inner.rows(ev.WRITE_ROWS, 70, 2, item(1, "a"))
    inner.xid()
    data = b"".join(inner.take())
    squeezed = pa.Codec("zstd").compress(data, asbytes=True)
    name = log.gtid()
    fields = b"\x02\x01\x00" + b"\x03\x03" + packed(len(data)) + b"\x01\x03" + packed(len(squeezed)) + b"\x00"
    fields = fields.replace(b"\x03\x03", bytes([3, len(packed(len(data)))]))
    fields = fields.replace(b"\x01\x03", bytes([1, len(packed(len(squeezed)))]))
    log.event(ev.TRANSACTION_PAYLOAD, fields + squeezed)
    fed = Fed(tmp_path)
    (transaction,) = fed.feed(log)
    assert transaction.txid == name
    assert fed.assembler.resume.place.position == log.at


# -- XA ----------------------------------------------------------------------------------------------------


def _prepared(log: Log, name: bytes, number: int) -> None:
    log.gtid()
    log.query(f"XA START X'{name.hex()}',X'',1")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(number, "xa"))
    log.query(f"XA END X'{name.hex()}',X'',1")
    log.prepare(name)


def test_xa_is_held_and_read_again_after_a_restart(tmp_path: Path, log: Log) -> None:
    fed = Fed(tmp_path)
    begin = log.take()
    fed.assembler.feed_all(begin)
    _inserted(log, 1)
    _prepared(log, b"one", 2)
    _inserted(log, 3)
    everything = list(log.events)
    assert _ids(fed.feed(log)) == [[1], [3]]
    resume = Resume.unpack(fed.assembler.resume.pack())
    assert resume.xa == ("X'6f6e65',X'',1",)
    assert resume.back is not None
    assert resume.back.gtids == f"{SERVER}:1"
    log.gtid()
    log.query("XA COMMIT X'6f6e65',X'',1")
    again = Fed(tmp_path, resume=resume)
    # the server sends what is not in the set of the place to go back to
    again.assembler.feed_all([*begin, *everything[5:]])
    assert again.assembler.committed == []
    assert again.assembler.resume == resume
    (transaction,) = again.feed(log)
    assert (_ids([transaction]), transaction.txid) == ([[2]], f"{SERVER}:4")
    assert again.assembler.resume.back is None
    assert again.assembler.count == fed.assembler.count + 1


def test_xa_that_is_rolled_back_never_comes_and_one_phase_comes_at_once(tmp_path: Path, log: Log) -> None:
    _prepared(log, b"undone", 1)
    log.gtid()
    log.query("XA ROLLBACK X'756e646f6e65',X'',1")
    log.gtid()
    log.query("XA START X'61',X'',1")
    log.table(ITEMS)
    log.rows(ev.WRITE_ROWS, 70, 2, item(2, "xa"))
    log.query("XA END X'61',X'',1")
    log.prepare(b"a", one_phase=True)
    fed = Fed(tmp_path)
    assert _ids(fed.feed(log)) == [[2]]
    assert fed.assembler.resume.back is None


def test_xa_whose_rows_are_not_in_the_log_any_more_is_an_error(tmp_path: Path, log: Log) -> None:
    place = Place("binlog.000001", 4, f"{SERVER}:1-5")
    resume = Resume(0, place, "x", xa=("X'61',X'',1",), back=Place("binlog.000001", 4, f"{SERVER}:1-2"))
    _inserted(log, 1, gtid=6)
    with pytest.raises(LogGapError, match="not found in the log again"):
        Fed(tmp_path, resume=resume).feed(log)


# -- ahead of the position ---------------------------------------------------------------------------------


def test_what_was_handed_over_before_must_come_again_in_the_same_order(tmp_path: Path, log: Log) -> None:
    names = [f"{SERVER}:{n}" for n in (1, 2, 3)]
    note = PendingGtids(dict(enumerate(names, 101))).pack()
    assert PendingGtids.unpack(note, 101).names == {102: names[1], 103: names[2]}
    _inserted(log, 1, gtid=1)
    _inserted(log, 3, gtid=3)
    with pytest.raises(LogGapError, match="another order"):
        Fed(tmp_path, ahead=PendingGtids.unpack(note, 100)).feed(log)


def test_a_large_group_lies_on_disk_and_can_be_read_twice(tmp_path: Path, log: Log) -> None:
    log.gtid(micros=SECONDS * 1_000_000)
    log.query("BEGIN")
    log.table(ITEMS)
    for number in range(200):
        log.rows(ev.WRITE_ROWS, 70, 2, item(number, "x" * 20))
    log.xid()
    fed = Fed(tmp_path, bytes_max=1_000)
    fed.assembler.feed_all(log.take())
    (transaction,) = fed.assembler.committed
    once = list(transaction.changes)
    assert once == list(transaction.changes)
    assert len(once) == transaction.count == 200


@pytest.mark.parametrize(
    ("body", "is_idle"),
    [
        ("05 00 00 00 00 00 00 00 00 00 00 00 29 12 0a 00 00 00 00", True),  # START ALTER
        ("06 00 00 00 00 00 00 00 00 00 00 00 29 14 05 00 00 00 00 00 00 00 0a 00 00 00", False),  # COMMIT ALTER
        ("0a 00 00 00 00 00 00 00 00 00 00 00 29 18 09 00 00 00 00 00 00 00 0c 00 00 00", True),  # ROLLBACK ALTER
        ("0b 00 00 00 00 00 00 00 00 00 00 00 0c 10 0d 00 00 00 00", False),
        ("0b 00 00 00 00 00 00 00 00 00 00 00 0c 00 00 00 00 00 00", False),  # as 10.11 has it
        ("0b 00 00 00 00 00 00 00 00 00 00 00 2b 02 00 00 00 00 00 00 00 02 00 00 00 00", True),  # with a commit id
        ("0b 00 00 00 00 00 00 00 00 00 00 00 40 01 00 00 00 02 01 61 62 63 02", True),  # behind an XA's name
    ],
)
def test_phases_of_an_alter_that_do_nothing_to_a_table(body: str, is_idle: bool) -> None:
    """As MariaDB 11.8 wrote them, but for the last two."""
    data = bytes.fromhex(body)
    e = struct.pack("<IBIIIH", SECONDS, ev.MARIA_GTID, 1, ev.HEADER + len(data), 0, 0) + data
    assert ev.maria_gtid(e).is_idle is is_idle
