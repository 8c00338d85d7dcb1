"""A Kafka transaction whose end was delayed leaves records that are then published once more."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.simulation.by_hand import ByHand, values_of
from tests.simulation.memory_spool import MemorySpool
from tests.simulation.topic import CHANGE_HEADER, change_value, checksum

from lowwater.errors import ChecksumMismatchError, CodecError, CountMismatchError, DuplicateIdError
from lowwater.records.positions import Order
from lowwater.records.types import Commit
from lowwater_merger.core.assemble import without_repeats
from lowwater_merger.core.lanes import ManyIds


def test_a_transaction_published_again_while_it_waits_is_dropped() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5, changes=3)
    group.transaction("t1", 5, changes=3)
    group.mark({1: 9}, epoch=2)
    assert group.read_and_release() == ["t1"]
    assert group.merger.repeats_dropped == 3
    assert group.source().error is None


def test_a_repeat_is_known_among_so_many_that_their_ids_are_packed() -> None:
    group = ByHand()
    group.mark({1: 0})
    for number in range(1, 21):
        group.transaction(f"t{number}", number)
        group.read()
        group.source().pack_ids(3)
    group.transaction("t2", 2)
    group.transaction("t20", 20)
    group.read()
    assert group.merger.repeats_dropped == 2
    group.transaction("t3", 21)
    group.read()
    group.error(DuplicateIdError)


#: of a hash, so many bits are kept: what it finds is looked at again
KEPT = (1 << 48) - 1


@given(st.lists(st.tuples(st.booleans(), st.integers(-(1 << 63), (1 << 63) - 1))))
@example([(True, 1 - (1 << 48)), (False, 0)])
def test_packed_ids_are_a_set(steps: list[tuple[bool, int]]) -> None:
    packed, plain = ManyIds(), set[int]()
    for is_added, id_hash in steps:
        for near in (id_hash, id_hash ^ 1 << 16, id_hash ^ 1):
            assert (near in packed) == (near & KEPT in plain)
        if is_added and id_hash not in packed:
            packed.add(id_hash)
            plain.add(id_hash & KEPT)
        elif plain:
            gone = max(plain)
            packed.discard(gone)
            packed.discard(gone)
            plain.discard(gone)
    assert all(id_hash in packed for id_hash in plain)


def test_a_transaction_published_again_after_its_release_is_dropped() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5, changes=3)
    group.mark({1: 9})
    assert group.read_and_release() == ["t1"]
    group.transaction("t1", 5, changes=3)
    group.mark({1: 9}, epoch=2)
    assert group.read_and_release() == []
    assert group.merger.released_again_dropped == 1


def test_the_first_of_two_copies_gives_the_clock() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.transaction("t1", 5, clock=100)
    group.transaction("t1", 5, clock=70)
    group.mark({1: 9}, 200, epoch=2)
    group.read()
    assert [r.clock_us for r in group.released()] == [100]


@pytest.mark.parametrize("seen", [0, 1, 2, 3])
def test_a_prefix_that_was_seen_and_published_again_counts_once(seen: int) -> None:
    group = ByHand(spool=MemorySpool())
    group.mark({1: 0})
    for seq in range(1, seen + 1):
        group.change("t1", seq)
    group.read()
    # what was seen before may lie on disk by now
    group.merger.spill(0)
    group.transaction("t1", 5, changes=3)
    group.mark({1: 9}, epoch=2)
    group.read()
    (released,) = group.released()
    assert values_of(released) == [change_value(n, f"t1-{n}") for n in (1, 2, 3)]
    assert group.merger.repeats_dropped == seen


def test_an_abandoned_attempt_leaves_nothing() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.change("t1", 1, payload="by the old config")
    group.change("t1", 2, payload="by the old config")
    group.abandon("t1")
    group.transaction("t1", 5, changes=2)
    group.mark({1: 9})
    group.read()
    (released,) = group.released()
    assert values_of(released) == [change_value(1, "t1-1"), change_value(2, "t1-2")]
    assert group.merger.repeats_dropped == 0


def test_an_abandon_that_nothing_waits_for_does_nothing() -> None:
    group = ByHand()
    group.mark({1: 0})
    group.abandon("t1")
    group.mark({1: 9})
    assert group.read_and_release() == []
    assert group.source().error is None


def _commit(values: list[bytes]) -> Commit:
    return Commit("a", 1, "t1", Order(5, 1), 0, 0, len(values), checksum(values))


def _settle(blocks: list[list[bytes]], commit: Commit) -> tuple[list[bytes], int]:
    kept: list[bytes] = []
    dropped = 0
    for block, repeats in without_repeats(blocks, commit):
        kept += block
        dropped += repeats
    return kept, dropped


payloads = st.lists(st.text(max_size=5), min_size=1, max_size=8)


@given(payloads, st.data())
def test_any_prefixes_before_the_whole_leave_the_whole(texts: list[str], data: st.DataObject) -> None:
    values = [change_value(n, text) for n, text in enumerate(texts, start=1)]
    prefixes = data.draw(st.lists(st.integers(0, len(values)), max_size=3))
    blocks = [values[:end] for end in prefixes] + [values]
    assert _settle(blocks, _commit(values)) == (values, sum(prefixes))


@given(payloads, st.data())
def test_a_missing_change_is_an_error_wherever_it_is(texts: list[str], data: st.DataObject) -> None:
    values = [change_value(n, text) for n, text in enumerate(texts, start=1)]
    gone = data.draw(st.integers(0, len(values) - 1))
    with pytest.raises(CountMismatchError):
        _settle([values[:gone] + values[gone + 1 :]], _commit(values))


@given(payloads, st.data())
def test_a_change_with_other_bytes_is_an_error_wherever_it_is(texts: list[str], data: st.DataObject) -> None:
    values = [change_value(n, text) for n, text in enumerate(texts, start=1)]
    place = data.draw(st.integers(0, len(values) - 1))
    altered = [*values]
    altered[place] += b"!"
    for blocks in ([altered], [values, altered], [altered, values]):
        with pytest.raises(ChecksumMismatchError):
            _settle(blocks, _commit(values))


def test_a_change_without_a_number_is_an_error() -> None:
    with pytest.raises(CodecError):
        _settle([[CHANGE_HEADER]], _commit([change_value(1, "x")]))
