"""Events: what matters of the vectors, in the log's order; and an error, with its place, for what nobody knows."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone, tzinfo
from struct import pack

import pytest
from tests.support.oracle_logs import (
    CONTAINER,
    LITTLE,
    OBJECT,
    MadeLog,
    MadeLwn,
    MadeRecord,
    begin,
    commit,
    filler,
    record,
    undo,
    undone,
    vector,
)
from tests.unit.oracle.plain_vectors import unpack_vector

from lowwater.errors import LogCorruptError, LogUnknownError, MarkBrokenError
from lowwater_extractor.sources.oracle.redo import opcodes
from lowwater_extractor.sources.oracle.redo.blocks import rows
from lowwater_extractor.sources.oracle.redo.codes import (
    BEGIN,
    COMMIT,
    DDL,
    FLAG_BIG_ENDIAN,
    FLAG_SYSTEM,
    HEAD,
    LOAD,
    PREPARE,
    ROLLBACK,
    ROW,
    UNDO,
)
from lowwater_extractor.sources.oracle.redo.events import Captured, Event, EventMaker, Lwn
from lowwater_extractor.sources.oracle.redo.layout import UNDO_HEAD, UNDO_MIDDLE, UNDO_TAIL, Format
from lowwater_extractor.sources.oracle.redo.scan import Damage, Payload, find_lwns

XID = (10, 12, 572)
NUMBER = CONTAINER << 64 | 10 << 48 | 12 << 32 | 572
SLOT = CONTAINER << 64 | 10 << 48 | 12 << 32
OTHER = OBJECT + 1
#: the same 16 bits as the captured object's
TWIN = OBJECT + (1 << 16)
MINE = Captured.of([(CONTAINER, OBJECT)])


def made(
    lwns: list[MadeLwn],
    captured: Captured = MINE,
    form: Format = LITTLE,
    zone: tzinfo = UTC,
) -> list[Lwn]:
    blocks = rows(MadeLog(form=form).pack(lwns), form.block_size)[2:]
    found = find_lwns(blocks, form)
    assert not isinstance(found, Damage)
    payload = Payload(form, len(blocks))
    payload.load(blocks)
    maker = EventMaker("orders", 1, captured, zone)
    return maker.make(payload, found[0], 15, 2 * form.block_size)


def events(*records: MadeRecord, captured: Captured = MINE, form: Format = LITTLE) -> list[Event]:
    return [event for lwn in made([MadeLwn(10, records)], captured, form) for event in lwn.events]


def row(opcode: int = 0x0B02, number: int = OBJECT, form: Format = LITTLE, typ: int = 0) -> bytes:
    return vector(opcode, bytes(24), bytes(48), b"\xc1\x02", form=form, low_object=number & 0xFFFF, typ=typ)


def head(event: Event) -> tuple[int, int, int]:
    value, flags, split = HEAD.unpack_from(event[4])
    return value, flags, split


# --- rows


@pytest.mark.parametrize("form", [Format(order, size) for order in "<>" for size in (512, 1024, 4096)], ids=str)
def test_a_transaction(form: Format) -> None:
    one, two = undo(XID, bytes(8), bytes(20), form=form), row(form=form)
    first = record(10, begin(XID, form=form), one, two)
    found = events(first, record(11, commit(XID, form=form)), form=form)
    assert [event[:3] for event in found] == [(10, NUMBER, BEGIN), (10, NUMBER, ROW | 0x0B02), (11, NUMBER, COMMIT)]
    flags = FLAG_BIG_ENDIAN if form.order == ">" else 0
    assert head(found[1]) == (OBJECT, flags, len(one) // 4)
    assert found[1][4][HEAD.size :] == one + two
    at = 68 + len(begin(XID, form=form))
    assert [event[3] for event in found] == [68, at, at + len(one) + len(two) + 24]
    assert head(found[2]) == (1772847880, 2, 0)


def test_several_rows_in_one_record_and_their_partners() -> None:
    pairs = [(undo(XID), row(opcode)) for opcode in sorted(opcodes.ROWS)]
    found = events(record(10, begin(XID), *(part for pair in pairs for part in pair)))
    assert [event[2] for event in found[1:]] == [ROW | opcode for opcode in sorted(opcodes.ROWS)]
    assert [event[4][HEAD.size :] for event in found[1:]] == [one + two for one, two in pairs]
    places = [event[3] for event in found]
    assert places == sorted(set(places))


def test_rows_of_other_objects_are_passed_over() -> None:
    other = [undo(XID, number=OTHER), row(number=OTHER), undo(XID, number=TWIN), row(number=TWIN)]
    elsewhere = undo(XID, container=4)
    index = [undo(XID, number=OTHER, operation=0x0A16), vector(0x0A02, bytes(24), bytes(20))]
    found = events(record(10, *other, elsewhere, row(), *index, undo(XID), row(0x0B05), *other))
    assert [event[2] for event in found] == [ROW | 0x0B05]


def test_places_do_not_depend_on_what_is_captured() -> None:
    records = [record(10, undo(XID, number=OTHER), row(number=OTHER)), filler(11, 1000), record(12, undo(XID), row())]
    both = Captured.of([(CONTAINER, OBJECT), (CONTAINER, OTHER)])
    assert events(*records, captured=both)[1:] == events(*records)


def test_a_5_1_that_stands_alone() -> None:
    alone = undo(XID)
    found = events(record(10, alone, vector(0x0514, bytes(8))), record(11, alone), record(12, alone, alone, row()))
    assert [event[2] for event in found] == [ROW, ROW, ROW, ROW | 0x0B02]
    assert [event[4][HEAD.size :] for event in found] == [alone, alone, alone, alone + row()]
    assert [head(event)[2] for event in found] == [0, 0, 0, len(alone) // 4]


def test_the_parts_of_an_undo_over_several_blocks_are_handed_on() -> None:
    tail, middle, whole = (undo(XID, flags=flags) for flags in (UNDO_TAIL, UNDO_MIDDLE, UNDO_HEAD))
    found = events(record(10, tail), record(11, middle), record(12, whole, row()))
    assert [event[2] for event in found] == [ROW, ROW, ROW | 0x0B02]
    assert [event[4][HEAD.size :] for event in found] == [tail, middle, whole + row()]


def test_a_second_11_x_behind_a_5_1_belongs_to_it() -> None:
    found = events(record(10, undo(XID), row(0x0B08), row(0x0B02)))
    assert [event[2] for event in found] == [ROW | 0x0B08]
    assert found[0][4][HEAD.size :] == undo(XID) + row(0x0B08) + row(0x0B02)


def test_undo_of_a_captured_object_that_is_no_row() -> None:
    found = events(record(10, undo(XID, operation=0x0507)), record(11, undo(XID, operation=0x0D09), row(0x0B02, OTHER)))
    assert found == []


# --- rollback


@pytest.mark.parametrize("opcode", [0x0506, 0x050B])
@pytest.mark.parametrize("order", "<>")
def test_a_change_that_was_taken_back(opcode: int, order: str) -> None:
    form = Format(order)
    back, mark = row(0x0B03, form=form), undone(opcode, XID, form=form)
    found = events(record(10, back, mark), record(11, mark), form=form)
    assert [event[:3] for event in found] == [(10, SLOT, UNDO | 0x0B03), (11, SLOT, UNDO)]
    assert found[0][3] == 68 + len(back)
    assert head(found[0])[::2] == (OBJECT, len(back) // 4)
    assert found[0][4][HEAD.size :] == back + mark
    assert unpack_vector(found[1][4], HEAD.size, order).opcode == opcode


def test_changes_of_others_that_were_taken_back() -> None:
    records = [
        record(10, row(0x0B03, TWIN), undone(0x0506, XID, number=TWIN)),
        record(11, vector(0x0A04, bytes(8)), undone(0x0506, XID, operation=0x0A16)),
        record(12, row(0x0B03, TWIN), row(0x0B08, TWIN), undone(0x050B, XID, number=TWIN)),
    ]
    assert events(*records) == []


# --- transactions


def test_begin_without_a_number_is_none() -> None:
    assert events(record(10, begin((10, 12, 0)))) == []


def test_rolled_back() -> None:
    (found,) = events(record(10, commit(XID, flags=4)))
    assert (found[2], head(found)[1]) == (ROLLBACK, 4)


def test_a_commit_without_its_time_has_that_of_its_lwn() -> None:
    (found,) = events(record(10, commit(XID, time=None)))
    assert head(found)[0] == 1772847880


@pytest.mark.parametrize(
    ("flags", "code"), [(0, BEGIN), (1, BEGIN), (4, BEGIN), (2, BEGIN | FLAG_SYSTEM), (8, BEGIN | FLAG_SYSTEM)]
)
@pytest.mark.parametrize("opcode", [0x0513, 0x0514])
def test_whose_transaction_it_is(flags: int, code: int, opcode: int) -> None:
    before = [b"12345678", *[b"name"] * (9 if opcode == 0x0513 else 1)]
    session = vector(opcode, *before, pack("<HHH", flags, 0, 0), class_=0)
    (found,) = events(record(10, begin(XID), undo(XID, operation=0x0507), session))
    assert (found[2], head(found)[0]) == (code, flags)


def test_prepare() -> None:
    (found,) = events(record(10, vector(0x050C, pack("<HHI", 12, 0, 572), class_=35)))
    assert found[1:3] == (NUMBER, PREPARE)


def test_transactions_of_other_containers() -> None:
    assert events(record(10, begin(XID, container=4), commit(XID, container=4))) == []


def test_transactions_that_touch_nothing_captured_are_left_out() -> None:
    """Only if both ends are there, and nothing between."""
    mine, idle, open_, ended, elsewhere = (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 4, 1), (1, 5, 1)
    records = [
        record(10, begin(mine), undo(mine), row()),
        record(10, begin(idle), undo(idle, number=OTHER), row(number=OTHER)),
        record(11, begin(open_), begin(elsewhere)),
        record(12, commit(idle)),
        record(12, commit(ended)),
        record(12, commit(elsewhere, container=4)),
        record(12, begin(ended, container=4)),
        record(13, commit(mine, flags=4)),
        record(14, begin((2, 2, 2)), commit((2, 2, 2), flags=4)),
    ]
    captured = Captured.of([(CONTAINER, OBJECT), (4, 1)])
    found = [
        (xid >> 64, xid >> 32 & 0xFFFF, code) for _, xid, code, _, _ in made([MadeLwn(10, records)], captured)[0].events
    ]
    assert found == [
        (CONTAINER, 1, BEGIN),
        (CONTAINER, 1, ROW | 0x0B02),
        (CONTAINER, 3, BEGIN),
        (CONTAINER, 5, BEGIN),
        (CONTAINER, 4, COMMIT),
        (4, 5, COMMIT),
        (4, 4, BEGIN),
        (CONTAINER, 1, ROLLBACK),
    ]


def test_they_are_not_left_out_if_a_reader_can_stop_in_between() -> None:
    idle = (1, 2, 1)
    lwns = [MadeLwn(10, [record(10, begin(idle))]), MadeLwn(20, [record(20, commit(idle))])]
    found = made(lwns, Captured.of([(CONTAINER, OBJECT)]))
    assert [event[2] for lwn in found for event in lwn.events] == [BEGIN, COMMIT]


def test_they_are_not_left_out_if_what_they_changed_stands_behind_their_commit() -> None:
    """Records of an LWN need not be in order; these are, by their SCN: begin, row, commit."""
    records = [record(10, begin(XID)), record(12, commit(XID)), record(11, undo(XID), row())]
    idle = [record(13, begin((1, 9, 1))), record(13, commit((1, 9, 1)))]
    assert [event[2] for event in events(*records, *idle)] == [BEGIN, ROW | 0x0B02, COMMIT]


def test_ddl() -> None:
    def ddl(number: int, kind: int = 1, fields: int = 12) -> bytes:
        first = pack("<IHHIHHHHH", 0, *XID, 15, 0, kind, 1, 1)
        rest = [b""] * 6 + [b"drop table t\0"] + [b""] * 3 + [pack("<I", number)]
        return vector(0x1801, first, *rest[: fields - 1], class_=0)

    found = events(record(10, ddl(OBJECT), ddl(OTHER), ddl(OBJECT, kind=4), ddl(OBJECT, fields=8)))
    assert [event[1:3] for event in found] == [(NUMBER, DDL)] * 3
    assert [head(event)[0] for event in found] == [OBJECT, OTHER, 0]
    assert found[0][4][HEAD.size :] == ddl(OBJECT)


# --- LWNs


def test_lwns_without_events_are_passed_over_but_the_last() -> None:
    lwns = [MadeLwn(10, []), MadeLwn(20, [record(21, commit(XID))]), MadeLwn(30, []), MadeLwn(40, [], upper=50)]
    found = made(lwns)
    assert [(lwn.offset, lwn.end, lwn.scn, lwn.upper, len(lwn.events)) for lwn in found] == [
        (1536, 2048, 20, 22, 1),
        (2560, 3072, 40, 50, 0),
    ]


def test_the_time_of_an_lwn_is_in_the_hosts_zone() -> None:
    assert made([MadeLwn(10, [])])[0].time == 1772847880
    assert made([MadeLwn(10, [])], zone=timezone(timedelta(hours=2)))[0].time == 1772847880 - 7200


def test_records_are_put_in_order_of_scn_and_sub_scn() -> None:
    late, early = record(12, commit(XID)), record(11, undo(XID), row())
    middle = record(11, commit((9, 9, 9)), sub_scn=2)
    found = events(late, early, middle)
    assert [event[0] for event in found] == [11, 11, 12]
    assert [event[2] for event in found] == [ROW | 0x0B02, COMMIT, COMMIT]
    places = [event[3] for event in found]
    assert places == sorted(set(places))
    # the same places when the row is not captured
    assert [event[3] for event in events(late, early, middle, captured=Captured.of([(CONTAINER, OTHER)]))] == places[1:]


def test_a_group_of_lwns_is_processed_as_one() -> None:
    lwns = [
        MadeLwn(10, [record(12, commit(XID))], number=0, members=2),
        MadeLwn(11, [record(11, undo(XID), row())], number=1, members=2),
    ]
    (found,) = made(lwns)
    assert (found.offset, found.end, found.scn, found.upper) == (1024, 2048, 10, 13)
    assert [event[2] for event in found.events] == [ROW | 0x0B02, COMMIT]


def test_an_upper_bound_that_the_records_exceed() -> None:
    assert made([MadeLwn(10, [filler(17, 100)], upper=12)])[0].upper == 18


# --- what stops the source


def refused(*records: MadeRecord, captured: Captured = MINE) -> str:
    with pytest.raises(LogUnknownError) as caught:
        events(*records, captured=captured)
    assert caught.value.hint
    text = str(caught.value)
    assert "source orders, thread 1, position sequence 15 offset 1024 record" in text
    assert "bytes " in text
    return text


@pytest.mark.parametrize("flags", [UNDO_HEAD, UNDO_TAIL, UNDO_MIDDLE])
def test_rollback_of_undo_over_several_blocks(flags: int) -> None:
    assert "several undo blocks" in refused(record(10, row(), undone(0x0506, XID, flags=flags)))
    assert events(record(10, row(number=OTHER), undone(0x0506, XID, number=OTHER, flags=flags))) == []


@pytest.mark.parametrize("opcode", [0x0B07, 0x0B09, 0x0B0D, 0x0BFF])
def test_an_unknown_row_operation(opcode: int) -> None:
    text = refused(record(10, undo(XID), row(opcode)))
    assert f"11.{opcode & 0xFF}" in text
    assert events(record(10, undo(XID, number=OTHER), row(opcode, OTHER))) == []


def test_undo_of_an_unknown_operation() -> None:
    assert "undo of operation 11.7 on a captured object" in refused(record(10, undo(XID, operation=0x0B07), row()))
    assert "undo of operation 99.1" in refused(record(10, row(), undone(0x0506, XID, operation=0x6301)))


def test_a_row_without_undo() -> None:
    assert "without undo on a captured object, by 16 bits of its id: 11.5" in refused(
        record(10, filler(1, 100).vectors[0], row(0x0B05))
    )
    assert "without undo on a captured object, by 16 bits of its id: 11.5" in refused(
        record(10, row(0x0B05), vector(0x0401, bytes(8)))
    )
    # a rollback covers only what stands right before it
    assert "without undo" in refused(record(10, row(0x0B05), vector(0x0401, bytes(8)), undone(0x0506, XID)))
    assert events(record(10, row(0x0B04)), record(11, row(0x0B05, OTHER))) == []


def test_encrypted_changes() -> None:
    hidden = undo(XID, number=OTHER, typ=0x80)
    assert "encrypted" in refused(record(10, hidden, row(typ=0x80)))
    assert "encrypted" in refused(record(10, hidden, row()))
    assert "encrypted" in refused(record(10, undo(XID), row(typ=0x80)))
    assert events(record(10, hidden, row(number=OTHER, typ=0x80))) == []
    assert events(record(10, undo(XID, number=TWIN), row(number=TWIN, typ=0x80))) == []


def test_an_unknown_operation_on_a_captured_object() -> None:
    strange = vector(0x6301, bytes(8), low_object=OBJECT & 0xFFFF)
    assert "unknown operation" in refused(record(10, strange))
    assert events(record(10, vector(0x6301, bytes(8), low_object=OTHER & 0xFFFF))) == []


def test_an_unknown_operation_on_undo() -> None:
    assert "5.99" in refused(record(10, vector(0x0563, bytes(8), class_=35)))
    assert events(record(10, vector(0x0563, bytes(8), class_=35, container=4))) == []


def test_a_direct_load_into_a_captured_table() -> None:
    load = vector(0x1301, pack("<I", OBJECT) + bytes(40))
    assert "direct load" in refused(record(10, load))
    moved = Captured.of([(CONTAINER, OBJECT)], [(CONTAINER, 99)])
    assert events(record(10, load), captured=moved) == []


def test_a_load_without_logging_into_a_captured_table() -> None:
    for opcode in (0x1302, 0x1304):
        assert "direct load" in refused(record(10, vector(opcode, bytes(8), low_object=OBJECT & 0xFFFF)))
        assert events(record(10, vector(opcode, bytes(8), low_object=OTHER & 0xFFFF))) == []


@pytest.mark.parametrize("form", [Format("<"), Format(">")], ids=str)
def test_a_load_is_handed_on_where_the_database_can_be_asked(form: Format) -> None:
    """Also one into a data object that is younger than the dictionary: the table may have been truncated or moved."""
    live = MINE._replace(newest=OBJECT + 10)
    young, old = OBJECT + 11, OBJECT + 1
    loads = [vector(0x1301, pack(f"{form.order}I", n) + bytes(40), form=form) for n in (OBJECT, young, old)]
    unlogged = vector(0x1302, bytes(8), low_object=OBJECT & 0xFFFF, form=form)
    elsewhere = vector(0x1301, pack(f"{form.order}I", young) + bytes(40), form=form, container=4)
    found = events(record(10, *loads, unlogged, elsewhere), captured=live, form=form)
    assert [event[2] for event in found] == [LOAD] * 3
    assert [head(event)[0] for event in found[:2]] == [OBJECT, young]
    assert head(found[2])[0] & 0xFFFF == OBJECT & 0xFFFF
    assert {len(event[4]) for event in found} == {HEAD.size + 32}


def test_undo_without_its_fields() -> None:
    assert "5.1 without its undo" in refused(record(10, vector(0x0501, bytes(20), class_=36)))
    assert "5.1 without its undo" in refused(record(10, vector(0x0501, class_=36)))
    assert "does not name its object" in refused(record(10, vector(0x0506, bytes(8), class_=36)))


def test_what_comes_before_the_error_is_taken_first() -> None:
    lwns = [MadeLwn(10, [record(10, commit(XID))]), MadeLwn(20, []), MadeLwn(30, [record(30, undo(XID), row(0x0B07))])]
    found = made(lwns)
    assert [lwn.scn for lwn in found] == [10, 20]
    with pytest.raises(LogUnknownError):
        made(lwns[2:])


def test_a_record_below_the_scn_of_its_lwn() -> None:
    with pytest.raises(MarkBrokenError, match="below the SCN of its LWN"):
        made([MadeLwn(10, [filler(9, 100)])])


def test_damage_that_the_checksum_does_not_see() -> None:
    raw = bytearray(vector(0x0B02, bytes(20)))
    raw[32] = 99
    with pytest.raises(LogCorruptError, match="a vector that does not fit its record"):
        events(record(10, bytes(raw)))


# --- the list


def test_every_opcode_that_is_passed_over_has_its_reason() -> None:
    assert all(opcodes.PASSED.values())
    assert all(opcodes.PASSED_LAYERS.values())
    kinds = opcodes.kinds()
    assert not kinds[list(opcodes.PASSED)].any()
    assert 11 not in opcodes.PASSED_LAYERS
    assert 5 not in opcodes.PASSED_LAYERS
