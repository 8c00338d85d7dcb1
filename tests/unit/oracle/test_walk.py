"""The compiled walks beside the plain Python that they are made of, also on bytes that are no redo.

Plain Python checks every index by itself: what it takes without an IndexError, the compiled form reads no further.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracle_logs import (
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
from tests.plain_form import plain_form

from lowwater_extractor.sources.oracle.redo import picks, scan, walk
from lowwater_extractor.sources.oracle.redo.blocks import rows
from lowwater_extractor.sources.oracle.redo.found import Captured
from lowwater_extractor.sources.oracle.redo.layout import Format
from lowwater_extractor.sources.oracle.redo.opcodes import Kind
from lowwater_extractor.sources.oracle.redo.sieve import Sieve

FORMS = [Format(), Format(order=">"), Format(block_size=1024)]
WANTED = Sieve(Captured.of([(CONTAINER, OBJECT)])).wanted


def plain() -> ModuleType:
    return plain_form(walk.__name__)


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


def walked(module: ModuleType, data: bytes, form: Format) -> list[Any]:
    """All that the walks find, or where they say that it is damaged."""
    blocks = rows(data, form.block_size)[2:].copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "walk", module)
        patch.setattr(picks, "walk", module)
        lwns = scan.find_lwns(blocks, form)
        if isinstance(lwns, scan.Damage):
            return [lwns]
        if not len(lwns[0].start):
            return [lwns[1]]
        payload = scan.Payload(form, len(blocks))
        payload.load(blocks)
        records = scan.walk_records(payload, lwns[0])
        if isinstance(records, scan.Damage):
            return [records]
        found = picks.pick_vectors(payload, records, WANTED)
        if isinstance(found, scan.Damage):
            return [found]
        return [column.tolist() for column in (*records, *found[1:])]


def test_the_walk_is_compiled() -> None:
    """If not: `make setup` builds it."""
    assert str(walk.__file__).endswith(".so")
    assert not str(plain().__file__).endswith(".so")


@pytest.mark.parametrize("form", FORMS)
def test_both_find_the_same(form: Format) -> None:
    found = walked(walk, log(form), form)
    assert found == walked(plain(), log(form), form)
    kinds = found[-2]
    assert kinds.count(Kind.BEGIN) == kinds.count(Kind.COMMIT) == 1
    assert kinds.count(Kind.UNDO) == 3


@settings(max_examples=400, deadline=None)
@given(
    form=st.sampled_from(FORMS),
    damage=st.lists(st.tuples(st.integers(0), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4),
)
def test_both_find_the_same_in_what_is_damaged(form: Format, damage: list[tuple[int, bytes]]) -> None:
    data = bytearray(log(form))
    for at, what in damage:
        at = 2 * form.block_size + at % (len(data) - 2 * form.block_size - len(what))
        data[at : at + len(what)] = what
    assert walked(walk, bytes(data), form) == walked(plain(), bytes(data), form)


def test_sizes_that_would_lead_out_of_the_payload() -> None:
    """Every size of every vector and record, made as large as it can be."""
    form = FORMS[0]
    whole = log(form)
    for at in range(2 * form.block_size, len(whole) - 1, 2):
        data = bytearray(whole)
        data[at : at + 2] = b"\xff\xff"
        assert walked(walk, bytes(data), form) == walked(plain(), bytes(data), form)


def test_kinds_are_those_of_the_opcodes() -> None:
    module = plain()
    for kind in (
        Kind.PASSED,
        Kind.UNDO,
        Kind.ROW,
        Kind.BEGIN,
        Kind.COMMIT,
        Kind.UNDONE,
        Kind.STATE,
        Kind.SESSION,
        Kind.DDL,
    ):
        assert getattr(module, f"_{kind.name}") == kind
    assert np.iinfo(np.uint8).max >= max(Kind)
