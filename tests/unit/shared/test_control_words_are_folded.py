"""The fold of the control topic: the first write that changes a version wins, for every reader the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from lowwater.control.fold import ControlFold, ControlState, initial
from lowwater.records.types import Control, Exclusion, Wanted


def _word(version: int, kind: str = "source", name: str = "rac", **more: object) -> Control:
    return replace(initial(kind, name).control, changes_version=version, **more)  # type: ignore[arg-type]


def test_before_the_first_word_everything_runs() -> None:
    state = ControlFold().get("source", "rac")
    assert (state.version, state.control.wanted) == (0, Wanted.RUNNING)


def test_a_word_makes_the_next_version() -> None:
    fold = ControlFold()
    assert fold.apply(_word(0, wanted=Wanted.PAUSED))
    assert fold.apply(_word(1, wanted=Wanted.RUNNING, reason="done"))
    assert fold.get("source", "rac") == ControlState(2, _word(1, wanted=Wanted.RUNNING, reason="done"))


def test_the_second_word_for_the_same_version_is_passed_over() -> None:
    fold = ControlFold()
    assert fold.apply(_word(0, reason="first"))
    assert not fold.apply(_word(0, reason="second"))
    assert fold.get("source", "rac").control.reason == "first"


def test_a_word_for_a_version_that_is_not_there_yet_is_passed_over() -> None:
    fold = ControlFold()
    assert not fold.apply(_word(1, reason="too early"))
    assert fold.get("source", "rac").version == 0


def test_sources_and_groups_of_one_name_are_two() -> None:
    fold = ControlFold()
    fold.apply(_word(0, kind="group", wanted=Wanted.STOPPED))
    assert fold.get("source", "rac").control.wanted is Wanted.RUNNING
    assert fold.get("group", "rac").control.wanted is Wanted.STOPPED


def test_a_sources_excluded_threads_are_those_of_all_groups() -> None:
    fold = ControlFold()
    fold.apply(_word(0, "group", "a", exclusions=(Exclusion("rac", 2, ""), Exclusion("other", 5, ""))))
    fold.apply(_word(0, "group", "b", exclusions=(Exclusion("rac", 3, ""),)))
    assert fold.excluded("rac") == {2, 3}
    fold.apply(_word(1, "group", "a"))
    assert fold.excluded("rac") == {3}
    assert fold.excluded("nobody") == frozenset()


@given(st.lists(st.tuples(st.sampled_from(["rac", "pg"]), st.integers(0, 4)), max_size=30))
def test_versions_only_count_up_and_every_reader_folds_the_same(words: list[tuple[str, int]]) -> None:
    folds = [ControlFold(), ControlFold()]
    for number, (name, version) in enumerate(words):
        word = _word(version, name=name, reason=str(number))
        before = folds[0].get("source", name).version
        accepted = [fold.apply(word) for fold in folds]
        assert accepted == [version == before] * 2
        assert folds[0].get("source", name) == folds[1].get("source", name)
        assert folds[0].get("source", name).version == before + accepted[0]
