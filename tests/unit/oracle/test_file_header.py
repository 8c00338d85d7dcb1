"""The two header blocks: every field, both SCN forms, and a clear word for what is not the log that was looked for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.oracle_logs import IDENTITY, MadeLog, MadeLwn, real_logs

from lowwater.errors import IncarnationError, LogCorruptError, LogGapError, LogUnknownError
from lowwater_extractor.sources.oracle.redo.file_header import (
    HEADER_BYTES,
    Identity,
    LogHeader,
    NoHeader,
    check_header,
    check_length,
    unpack_header,
)
from lowwater_extractor.sources.oracle.redo.layout import (
    NAB_OPEN,
    SCN_NONE,
    Format,
    Where,
    epoch_seconds,
    pack_scn,
    pack_time,
    unpack_scn,
    unpack_scn_wrap_first,
    unpack_time,
    version_text,
)
from lowwater_extractor.sources.oracle.scn import Scn

WHERE: Where = {"source": "orders", "thread": 1, "position": "sequence 15 offset 0 record 0"}


def header(data: bytes) -> LogHeader:
    head = unpack_header(data)
    assert isinstance(head, LogHeader), head
    return head


def why(data: bytes) -> str:
    head = unpack_header(data)
    assert isinstance(head, NoHeader)
    return head.why


def test_the_real_headers() -> None:
    first, second = (header(path.read_bytes()[:HEADER_BYTES]) for path in real_logs())
    assert first == LogHeader(
        form=Format("<", 512, 0x17060000),
        file_blocks=598,
        database=1497016494,
        name="FREE",
        activation=1496992686,
        group=2,
        thread=1,
        sequence=15,
        resetlogs=1224959854,
        resetlogs_scn=Scn(2061806),
        previous_resetlogs=1222743579,
        first_scn=Scn(2266630),
        next_scn=Scn(2267717),
        first_time=first.first_time,
        next_time=first.next_time,
        used_blocks=598,
        end_of_thread=False,
        largest_lwn=13,
        flags=0x10800011,
    )
    assert version_text(first.form.version) == "23.6.0"
    assert unpack_time(first.first_time) == datetime(2026, 3, 7, 1, 44, 38)
    assert unpack_time(first.next_time) == datetime(2026, 3, 7, 1, 44, 40)
    assert unpack_time(first.resetlogs) == datetime(2026, 2, 11, 18, 37, 34)
    assert (first.closed, first.end) == (True, 306176)
    assert (second.sequence, second.used_blocks, second.group, second.largest_lwn) == (16, 10, 1, 5)
    assert (second.first_scn, second.next_scn) == (2267717, 2267723)


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize("size", [512, 1024, 4096])
def test_every_block_size_and_byte_order(order: str, size: int) -> None:
    form = Format(order, size)
    head = header(MadeLog(form=form, thread=3, sequence=77, first_scn=1 << 44).pack([MadeLwn(1, [])]))
    assert (head.form, head.thread, head.sequence, head.identity) == (form, 3, 77, IDENTITY)
    assert (head.first_scn, head.next_scn, head.used_blocks, head.end) == (1 << 44, 9000, 3, 3 * size)


def test_a_log_that_is_still_written() -> None:
    head = header(MadeLog(next_scn=None).pack([]))
    assert (head.closed, head.end, head.next_scn, head.used_blocks) == (False, 0, SCN_NONE, NAB_OPEN)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "no redo log: 0 bytes"),
        (b"PK" * 4000, "no redo log"),
        (MadeLog().pack([])[:700], "cut short: 700 bytes"),
        (MadeLog(form=Format(version=0)).pack([]), "never used"),
    ],
)
def test_what_is_no_log(data: bytes, what: str) -> None:
    assert what in why(data)


def test_a_block_size_that_there_is_not() -> None:
    data = bytearray(MadeLog().pack([]))
    data[20:24] = (2048).to_bytes(4, "little")
    assert "block size 2048" in why(bytes(data))


def test_every_bit_of_both_header_blocks_counts() -> None:
    data = MadeLog().pack([])[:1024]
    for bit in range(1024 * 8):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert isinstance(unpack_header(bytes(changed)), NoHeader), bit


@pytest.mark.parametrize(
    ("log", "error", "what"),
    [
        (MadeLog(sequence=14), LogGapError, "log 15 of thread 1 contains log 14 of thread 1"),
        (MadeLog(thread=2), LogGapError, "log 15 of thread 1 contains log 15 of thread 2"),
        (MadeLog(identity=IDENTITY._replace(resetlogs=5)), IncarnationError, "1497016494.5"),
        (MadeLog(identity=IDENTITY._replace(database=5)), IncarnationError, "5.1224959854 (FREE)"),
        (MadeLog(form=Format(version=0x0B200400)), LogUnknownError, "version 11.2.0.4"),
    ],
)
def test_another_log_than_expected(log: MadeLog, error: type[Exception], what: str) -> None:
    with pytest.raises(error) as caught:
        check_header(header(log.pack([])), IDENTITY, 1, 15, WHERE)
    assert what in str(caught.value)
    assert "source orders, thread 1" in str(caught.value)


def test_a_file_that_is_cut_short() -> None:
    data = MadeLog().pack([MadeLwn(1000, []), MadeLwn(1001, [])])
    head = header(data)
    check_length(head, len(data), WHERE)
    with pytest.raises(LogCorruptError, match="cut short: 2047 of 2048 bytes"):
        check_length(head, len(data) - 1, WHERE)


def test_identity_as_text() -> None:
    assert str(Identity(7, 9)) == "7.9"


# --- SCNs and times


@given(scn=st.integers(0, (1 << 62) - 1), flagged=st.booleans(), order=st.sampled_from("<>"))
def test_an_scn_in_either_form(scn: int, flagged: bool, order: str) -> None:
    assert unpack_scn(pack_scn(Scn(scn), order, flagged=flagged), 0, order) == scn


def test_scn_forms_by_bytes() -> None:
    assert unpack_scn(bytes.fromhex("069622000000eeee"), 0) == 0x229606
    assert unpack_scn(bytes.fromhex("0696220000800000"), 0) == 0x229606
    assert unpack_scn(bytes.fromhex("0696220001800300"), 0) == 0x1_0003_0022_9606
    assert unpack_scn(b"\xff" * 6 + b"\0\0", 0) == SCN_NONE
    assert unpack_scn_wrap_first(bytes.fromhex("030006962200"), 0) == 0x3_0022_9606


@given(when=st.datetimes(datetime(1988, 1, 1), datetime(2120, 1, 1)))
def test_times(when: datetime) -> None:
    when = when.replace(microsecond=0)
    assert unpack_time(pack_time(when)) == when


def test_a_time_in_its_zone() -> None:
    assert epoch_seconds(0x49261288) == 1772847880
    assert epoch_seconds(0x49261288, UTC) == 1772847880
    assert epoch_seconds(0x49261288, timezone(timedelta(hours=1))) == 1772847880 - 3600
