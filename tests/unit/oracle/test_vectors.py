"""One record's vectors and the fields of those that carry transactions."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.oracle_logs import OBJECT, begin, commit, undo, undone, vector
from tests.unit.oracle.plain_vectors import (
    Ddl,
    Undo,
    Xid,
    unpack_commit,
    unpack_ddl,
    unpack_session,
    unpack_slot,
    unpack_undo,
    unpack_vector,
    unpack_vectors,
)

from lowwater_extractor.sources.oracle.redo.layout import Format

XID = (10, 12, 572)
FORMS = [Format("<"), Format(">")]


@given(fields=st.lists(st.binary(max_size=40), max_size=30), order=st.sampled_from("<>"))
def test_fields_are_what_was_put_in(fields: list[bytes], order: str) -> None:
    raw = vector(0x0B05, *fields, form=Format(order), class_=1, low_object=7, typ=6)
    one = unpack_vector(b"\xee" * 4 + raw, 4, order)
    assert [one.field(number + 1) for number in range(len(fields))] == fields
    assert one.field(len(fields) + 1) == b""
    assert (one.opcode, one.stop, one.low_object, one.typ, one.container) == (0x0B05, 4 + len(raw), 7, 6, 3)


@pytest.mark.parametrize("form", FORMS)
def test_undo(form: Format) -> None:
    one = unpack_vector(undo(XID, form=form, flags=0x80), 0, form.order)
    assert unpack_undo(one) == Undo(Xid(*XID), OBJECT, OBJECT, 6, 0x0B01, 0x80)
    for opcode in (0x0506, 0x050B):
        one = unpack_vector(undone(opcode, XID, form=form), 0, form.order)
        assert unpack_undo(one) == Undo(Xid(10, 12, 0), OBJECT, OBJECT, 6, 0x0B01, 0)


@pytest.mark.parametrize("form", FORMS)
def test_begin_and_commit(form: Format) -> None:
    assert unpack_slot(unpack_vector(begin(XID, form=form), 0, form.order)) == XID
    one = unpack_commit(unpack_vector(commit(XID, form=form, flags=6), 0, form.order))
    assert (one.xid, one.flags, one.time, one.rolled_back) == (XID, 6, 1772847880, True)
    assert unpack_commit(unpack_vector(commit(XID, form=form, time=None), 0, form.order)).time == 0


@pytest.mark.parametrize("form", FORMS)
def test_session(form: Format) -> None:
    first = pack(f"{form.order}HHI", 9, 0xCC81, 56)
    flags = pack(f"{form.order}HHH", 4, 0, 0)
    short = vector(0x0514, first, b"payday", flags, b"", b"", b"", b"", b"SCOTT", form=form)
    long = vector(0x0513, first, b"", b"SCOTT", *[b""] * 6, b"payday", flags, form=form)
    for raw in (short, long):
        assert unpack_session(unpack_vector(raw, 0, form.order), form) == (0xCC81, 56, "SCOTT", "payday", 4)
        older = form._replace(version=0x12000000)
        assert unpack_session(unpack_vector(raw, 0, form.order), older).session == 9


@pytest.mark.parametrize("form", FORMS)
def test_ddl(form: Format) -> None:
    first = pack(f"{form.order}IHHIHHHHH", 0, *XID, 15, 0, 1, 2, 3)
    number = pack(f"{form.order}I", OBJECT)
    raw = vector(0x1801, first, *[b""] * 6, b"drop table t\0", b"", b"", b"", number, form=form, class_=0)
    expected = Ddl(Xid(*XID), type=15, kind=1, part=2, parts=3, object=OBJECT, text=b"drop table t")
    assert unpack_ddl(unpack_vector(raw, 0, form.order)) == expected


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(35),
        vector(0x0B02, bytes(20))[:-4],
        bytes(32) + b"\3\0" + bytes(20),
        bytes(32) + b"\xff\0" + bytes(20),
    ],
)
def test_what_is_no_vector(raw: bytes) -> None:
    with pytest.raises(ValueError):
        unpack_vector(raw)


def test_vectors_that_do_not_fill_their_record() -> None:
    raw = vector(0x0B02, bytes(20))
    head = pack("<IB19x", 24 + len(raw) - 8, 1)
    with pytest.raises(ValueError):
        list(unpack_vectors(head + raw))
