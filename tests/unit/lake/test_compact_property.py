"""Random histories that are compacted, folded and swept on the way: every answer stays what it was."""

from __future__ import annotations

import tempfile

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.lake.histories import Step
from tests.unit.lake.kept_histories import KeptHistory, check

_KINDS = (*("insert",) * 4, *("update",) * 3, "delete", "delete", "move", "commit", "commit", "version", "truncate")
_OURS = ("compact", "compact", "retain", "retain", "below", "sweep")
_COPIES = ("copy", "copied", "copied")


#: the copy has the row, the changes above its beginning are folded away, and then it becomes readable
_DELETED_WHILE_COPIED: list[Step] = [
    *(("insert", 0, 1, 1), ("land", 0, 0, 0), ("copy", 0, 0, 0), ("delete", 0, 0, 1), ("land", 0, 0, 0)),
    *(("insert", 1, 1, 1), ("land", 0, 0, 0), ("retain", 0, 0, 1), ("copied", 0, 0, 0)),
]


def histories(*others: str) -> st.SearchStrategy[list[Step]]:
    """Landings of some changes, and behind each of them something else: short random lists would seldom get far."""

    def steps(kinds: tuple[str, ...]) -> st.SearchStrategy[Step]:
        return st.tuples(st.sampled_from(kinds), st.integers(0, 4), st.integers(0, 99), st.integers(0, 15))

    landing = st.tuples(st.lists(steps(_KINDS), min_size=1, max_size=6), steps(("land",)), steps(others))
    return st.lists(landing, min_size=3, max_size=12).map(
        lambda found: [step for changes, land, other in found for step in (*changes, land, other)]
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(*_OURS))
def test_answers_stay(found: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        history = KeptHistory(directory)
        history.run(found)
        check(history)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(histories(*_OURS, *_COPIES), st.booleans())
@example(_DELETED_WHILE_COPIED, False)
def test_answers_stay_with_copies(found: list[Step], existing: bool) -> None:
    rows = {(n, "x"): {"a": n, "b": "x", "n": n} for n in range(3)} if existing else {}
    with tempfile.TemporaryDirectory() as directory:
        history = KeptHistory(directory, rows, versions=(0, 1, 3))
        history.run(found)
        check(history)
