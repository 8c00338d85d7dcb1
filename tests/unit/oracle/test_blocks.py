"""Blocks: which one is wrong, and how. One changed bit is always found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.oracle_logs import seal

from lowwater_extractor.sources.oracle.redo.blocks import Wrong, find_bad, fold, rows
from lowwater_extractor.sources.oracle.redo.layout import Format

FORMS = [Format(order, size) for order in "<>" for size in (512, 1024, 4096)]


def made(form: Format, count: int = 5, number: int = 7, sequence: int = 15) -> bytes:
    noise = np.random.default_rng(1).bytes(form.block_size * count)
    blocks = np.frombuffer(noise, np.uint8).reshape(count, form.block_size).copy()
    blocks[:, 2:4] = 0
    return seal(blocks.tobytes(), number, sequence, form)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_good_blocks_of_every_size_and_order(form: Format) -> None:
    assert find_bad(rows(made(form), form.block_size), 7, 15, form) is None


@pytest.mark.parametrize(
    ("at", "value", "wrong"),
    [
        (0, b"\0\0\0\0", Wrong.EMPTY),
        (0, b"\2", Wrong.SIGNATURE),
        (2, b"\1", Wrong.SIGNATURE),
        (1, b"\x82", Wrong.SIZE_CLASS),
        (8, b"\x0e", Wrong.OLDER),
        (8, b"\x10", Wrong.NEWER),
        (4, b"\x63", Wrong.NUMBER),
        (100, b"\0\1\2\3\4\5", Wrong.CHECKSUM),
    ],
)
def test_says_which_block_is_wrong_and_how(at: int, value: bytes, wrong: Wrong) -> None:
    data = bytearray(made(Format()))
    start = 3 * 512 + at
    data[start : start + len(value)] = value
    bad = find_bad(rows(bytes(data), 512), 7, 15, Format())
    assert bad is not None
    assert (bad.good, bad.number, bad.wrong) == (3, 10, wrong)
    assert str(bad).startswith(f"block 10: {wrong.value}")


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_bit_of_a_block_counts(form: Format) -> None:
    """Each bit of a block changed in a copy of its own: no copy folds to 0."""
    size = form.block_size
    block = np.frombuffer(made(form, 1), np.uint8)
    for part in np.split(np.arange(size * 8), size // 128):
        copies = np.tile(block, (len(part), 1))
        copies[np.arange(len(part)), part // 8] ^= (1 << (part % 8)).astype(np.uint8)
        assert fold(copies).all()


@given(data=st.binary(min_size=512, max_size=512))
def test_fold_is_the_xor_of_all_words(data: bytes) -> None:
    folded = 0
    for at in range(0, 512, 2):
        folded ^= int.from_bytes(data[at : at + 2], "little")
    assert int(fold(rows(data, 512))[0]) == folded
