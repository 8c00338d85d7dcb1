"""The compiled walks beside the plain Python that they are made of, also on bytes that are no redo.

Plain Python checks every index by itself: what it takes without an IndexError, the compiled form reads no further.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.oracle_logs import (
    CONTAINER,
    OBJECT,
    MadeLog,
    MadeLwn,
    begin,
    commit,
    filler,
    record,
    row_pair,
    undo,
    undone,
    vector,
)
from tests.support.plain_form import plain_form

from lowwater_extractor.sources.oracle.redo import codes, layout, opcodes, scan
from lowwater_extractor.sources.oracle.redo import vector_columns as picks
from lowwater_extractor.sources.oracle.redo import vector_filter as sieve
from lowwater_extractor.sources.oracle.redo._native import lwns
from lowwater_extractor.sources.oracle.redo._native import record_scan as walk
from lowwater_extractor.sources.oracle.redo._native import vector_filter_fast as usual
from lowwater_extractor.sources.oracle.redo.blocks import rows
from lowwater_extractor.sources.oracle.redo.filter_results import Captured
from lowwater_extractor.sources.oracle.redo.layout import Format
from lowwater_extractor.sources.oracle.redo.opcodes import VectorKind
from lowwater_extractor.sources.oracle.redo.vector_filter import VectorFilter

FORMS = [Format(), Format(order=">"), Format(block_size=1024)]
CAPTURED = Captured.of([(CONTAINER, OBJECT)])
#: several keys to search; an object (11) that nobody knows yet
OTHERS = [
    Captured.of([(CONTAINER, OBJECT), (CONTAINER, 8), (CONTAINER, 1), (2, 9), (7, OBJECT)]),
    CAPTURED._replace(newest=10),
]

#: the walks over LWNs, over records and vectors, and over what was picked
Walks = tuple[ModuleType, ModuleType, ModuleType]
COMPILED = (lwns, walk, usual)


def plain() -> Walks:
    of_lwns, of_records, of_picks = (plain_form(module.__name__) for module in COMPILED)
    return of_lwns, of_records, of_picks


@cache
def log(form: Format) -> bytes:
    """Something of everything that the walk tells apart."""
    mine, idle, other = (1, 1, 1), (1, 2, 1), (2, 1, 7)
    first = [
        record(10, begin(mine, form=form), *row_pair(mine, form=form)),
        record(10, begin(idle, form=form), *row_pair(idle, number=9, form=form), vector(0x0514, bytes(20), form=form)),
        record(11, *row_pair(mine, form=form), vector(0x0B05, bytes(24), form=form)),
        filler(11, 2000, form),
        record(12, commit(idle, form=form)),
        record(12, row_pair(mine, form=form)[1], undone(0x050B, mine, form=form)),
        record(12, undo(mine, number=OBJECT, typ=0x80, form=form), vector(0x0B02, form=form)),
        record(13, vector(0x1801, bytes(24), form=form), vector(0x050C, bytes(24), form=form)),
        record(13, commit(mine, form=form)),
    ]
    second = [record(20, begin(other, form=form)), record(21, commit(other, form=form)), filler(21, 300, form)]
    return MadeLog(form=form).pack([MadeLwn(10, first), MadeLwn(20, second), MadeLwn(30, [])])


@cache
def usual_log(form: Format, number: int = 9) -> bytes:
    """What nearly all redo is: rows with their undo, of captured objects and of others, begins, commits, sessions."""
    mine, other, both = (1, 1, 1), (2, 1, 7), (3, 5, 9)
    start = vector(0x0513, *(bytes(4) for _ in range(10)), b"\x00\x02" * 2, form=form)
    on = vector(0x0514, bytes(4), bytes(2), b"\x08\x08", form=form)
    first = [
        record(10, begin(mine, form=form), start, *row_pair(mine, form=form)),
        record(10, begin(other, form=form), on, start),
        record(11, begin(both, form=form), *row_pair(both, number=number, form=form)),
        record(11, *row_pair(mine, form=form), vector(0x0B05, bytes(24), form=form)),
        record(11, undo(mine, number=OBJECT, form=form), vector(0x0B04, bytes(24), form=form)),
        record(12, vector(0x0B04, bytes(24), form=form), vector(0x6301, bytes(8), form=form)),
        filler(12, 700, form),
        record(12, *row_pair(both, form=form), *row_pair(both, number=8, form=form)),
        record(13, commit(mine, flags=4, form=form)),
    ]
    second = [
        record(20, commit(other, form=form)),
        record(21, *row_pair(both, form=form)),
        record(22, commit(both, form=form)),
    ]
    return MadeLog(form=form).pack([MadeLwn(10, first), MadeLwn(20, second), MadeLwn(30, [])])


def walked(walks: Walks, data: bytes, form: Format, captured: Captured = CAPTURED) -> list[Any]:
    """All that the walks find, or where they say that it is damaged."""
    of_lwns, module, of_picks = walks
    blocks = rows(data, form.block_size)[2:].copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "chain", of_lwns)
        patch.setattr(sieve, "list_usual", of_picks.list_usual)
        patch.setattr(scan, "walk", module)
        patch.setattr(picks, "walk", module)
        found_lwns = scan.find_lwns(blocks, form)
        if isinstance(found_lwns, scan.Damage):
            return [found_lwns]
        if not len(found_lwns[0].start):
            return [found_lwns[1]]
        payload = scan.Payload(form, len(blocks))
        payload.load(blocks)
        records = scan.walk_records(payload, found_lwns[0])
        if isinstance(records, scan.Damage):
            return [records]
        found = picks.pick_vectors(payload, records, VectorFilter(captured).wanted)
        if isinstance(found, scan.Damage):
            return [found]
        return [*(column.tolist() for column in (*records, *found[1:])), *sieved(found, records, captured)]


def sieved(found: picks.VectorColumns, records: scan.Records, captured: Captured) -> list[Any]:
    """Events of what was picked; where all is as usual, the same as whole columns give."""
    of_columns = VectorFilter(captured)
    of_columns._payload, of_columns.problems = found.payload, []
    expected = of_columns._unusual(found, records)
    quick = VectorFilter(captured)._usual(found)
    if quick is None:
        return [None]
    assert not of_columns.problems
    events = [column.tolist() for column in quick]
    if expected is None:
        assert events[0] == []
    elif records.ordered.all():
        assert events == [column.tolist() for column in expected.at(np.argsort(expected.place))]
    return events


def test_the_walk_is_compiled() -> None:
    """If not: `make setup` builds it."""
    assert all(str(module.__file__).endswith(".so") for module in COMPILED)
    assert not any(str(module.__file__).endswith(".so") for module in plain())


@pytest.mark.parametrize("form", FORMS)
def test_both_find_the_same(form: Format) -> None:
    found = walked(COMPILED, log(form), form)
    assert found == walked(plain(), log(form), form)
    kinds = found[-3]
    assert found[-1] is None, "there is more in it than is usual"
    assert kinds.count(VectorKind.BEGIN) == kinds.count(VectorKind.COMMIT) == 1
    assert kinds.count(VectorKind.UNDO) == 3


@pytest.mark.parametrize("form", FORMS)
def test_what_is_usual_is_what_the_sieve_finds(form: Format) -> None:
    found = walked(COMPILED, usual_log(form), form)
    assert found == walked(plain(), usual_log(form), form)
    assert found[-1] is not None
    code = found[-4]
    assert sorted(c & codes.OPERATION for c in code) == sorted(
        [*[codes.BEGIN] * 3, *[codes.COMMIT] * 2, codes.ROLLBACK, *[codes.ROW] * 5]
    )
    assert code.count(codes.BEGIN | codes.FLAG_SYSTEM) >= 1


def test_what_is_usual_depends_on_what_is_captured() -> None:
    several, young = (walked(COMPILED, usual_log(FORMS[0]), FORMS[0], captured) for captured in OTHERS)
    assert [code & codes.OPERATION for code in several[-4]].count(codes.ROW) == 6, "8, too"
    assert young[-1] is not None, "9 and 8 are not above 10"
    assert walked(COMPILED, usual_log(FORMS[0], 11), FORMS[0], OTHERS[1])[-1] is None, "nobody knows what 11 is"


@settings(max_examples=400, deadline=None)
@given(
    captured=st.sampled_from([CAPTURED, *OTHERS]),
    made=st.sampled_from([log, usual_log]),
    form=st.sampled_from(FORMS),
    damage=st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4),
)
def test_both_find_the_same_in_what_is_damaged(
    captured: Captured, made: Callable[[Format], bytes], form: Format, damage: list[tuple[int, bytes]]
) -> None:
    data = bytearray(made(form))
    for at, what in damage:
        at = 2 * form.block_size + at % (len(data) - 2 * form.block_size - len(what))
        data[at : at + len(what)] = what
    assert walked(COMPILED, bytes(data), form, captured) == walked(plain(), bytes(data), form, captured)


@pytest.mark.parametrize("made", [log, usual_log])
def test_sizes_that_would_lead_out_of_the_payload(made: Callable[[Format], bytes]) -> None:
    """Every size of every vector and record, made as large as it can be."""
    form = FORMS[0]
    whole = made(form)
    for at in range(2 * form.block_size, len(whole) - 1, 2):
        data = bytearray(whole)
        data[at : at + 2] = b"\xff\xff"
        assert walked(COMPILED, bytes(data), form) == walked(plain(), bytes(data), form)


def test_kinds_are_those_of_the_opcodes() -> None:
    _, module, of_picks = plain()
    for kind in (
        VectorKind.PASSED,
        VectorKind.UNDO,
        VectorKind.ROW,
        VectorKind.BEGIN,
        VectorKind.COMMIT,
        VectorKind.UNDONE,
        VectorKind.STATE,
        VectorKind.SESSION,
        VectorKind.DDL,
    ):
        assert getattr(module, f"_{kind.name}") == kind
    for kind in (
        VectorKind.PASSED,
        VectorKind.UNDO,
        VectorKind.ROW,
        VectorKind.BEGIN,
        VectorKind.COMMIT,
        VectorKind.SESSION,
        VectorKind.UNKNOWN,
    ):
        assert getattr(of_picks, f"_{kind.name}") == kind
    assert np.iinfo(np.uint8).max >= max(VectorKind)


def test_numbers_are_those_of_the_format() -> None:
    of_lwns, _, of_picks = plain()
    assert (of_lwns._BLOCK_HEAD, of_lwns._LWN_HEAD, of_lwns._VLD_LWN) == (
        layout.BLOCK_HEAD, layout.LWN_HEAD, layout.VLD_LWN
    )  # fmt: skip
    for name in ("ROW_UNDO", "LOCK", "SESSION_START", "SESSION_ON"):
        assert getattr(of_picks, f"_{name}") == getattr(opcodes, name)
    for name in ("ROW", "BEGIN", "COMMIT", "ROLLBACK"):
        assert getattr(of_picks, f"_CODE_{name}") == getattr(codes, name)
    assert (of_picks._FLAG_SYSTEM, of_picks._FLAG_BIG_ENDIAN) == (codes.FLAG_SYSTEM, codes.FLAG_BIG_ENDIAN)
    assert (of_picks._VECTOR_HEAD, of_picks._TYP_ENCRYPTED) == (layout.VECTOR_HEAD, layout.TYP_ENCRYPTED)
    assert of_picks._ROLLED_BACK == layout.COMMIT_ROLLED_BACK
    assert of_picks._SESSION_SYSTEM == layout.SESSION_SPACE | layout.SESSION_LOGMINER
    assert of_picks._COMMIT_FIELDS_MAX == sieve._COMMIT_FIELDS_MAX
