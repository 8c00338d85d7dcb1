"""Compaction: fewer files, the same answers; beside landings, beside itself, and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

import pytest
from tests.unit.lake.lander import NAME, Lander

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ATTEMPTS, File, Layer, ManifestKind
from lowwater.lake.read.state_plan import all_files
from lowwater.lake.read.verify import verify
from lowwater.lake.reader import Lake
from lowwater.runtime.times import now_us
from lowwater_spark.maintenance import compact as compact_module
from lowwater_spark.maintenance.compact import compact
from lowwater_spark.maintenance.maintain import maintain
from lowwater_spark.maintenance.merge_policy import groups
from lowwater_spark.maintenance.retention import retain, retention_gsn
from lowwater_spark.maintenance.state_policy import StatePolicy

SOON = StatePolicy(share=0.0, rows_min=1)
NEVER = StatePolicy(rows_min=1 << 60)


def state_of(lander: Lander, gsn: int | None = None) -> dict[int, str]:
    found = Lake(lander.store).state(NAME, gsn).rows()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["v"] for row in found}


def changes_of(lander: Lander, after: int = 0) -> list[dict[str, object]]:
    return list(Lake(lander.store).changes(NAME, after).arrow().to_pylist())


def files_of(lander: Lander, layer: Layer = Layer.STREAM) -> list[File]:
    return all_files(Chain.open(lander.store), NAME, layer)


def damage(lander: Lander) -> list[str]:
    return [found.what for found in verify(lander.store) if not found.rubbish]


def test_small_files_become_one_and_the_answers_stay(tmp_path: Path) -> None:
    lander = Lander(tmp_path)
    state = lander.land_many(12)
    changes = changes_of(lander)
    done = compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
    assert (done.files_before, done.files_after) == (12, 1)
    (file,) = files_of(lander)
    assert (file.gsn_min, file.gsn_max, file.rows, file.folded_to) == (1, 12, len(changes), 0)
    assert (file.bounds["id"].min, file.bounds["id"].max) == (0, 11)
    assert changes_of(lander) == changes
    assert state_of(lander) == state
    assert damage(lander) == []
    assert compact(None, Chain.open(lander.store), lander.config, policy=NEVER).manifests == ()


def test_a_state_is_kept_and_replaced(tmp_path: Path) -> None:
    lander = Lander(tmp_path)
    lander.land_many(10)
    compact(None, Chain.open(lander.store), lander.config, policy=SOON)
    assert {file.gsn_max for file in files_of(lander, Layer.STATE)} == {10}
    lander.land({100: "new", 9: None})
    half = StatePolicy(share=0.5, rows_min=1)
    compact(None, Chain.open(lander.store), lander.config, policy=half)
    assert {file.gsn_max for file in files_of(lander, Layer.STATE)} == {10}
    before = state_of(lander)
    compact(None, Chain.open(lander.store), lander.config, policy=SOON)
    assert {file.gsn_max for file in files_of(lander, Layer.STATE)} == {11}
    assert state_of(lander) == before
    assert before[100] == "new"
    assert 9 not in before


def test_a_state_without_rows(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=0)
    lander.land({1: "a"})
    lander.land({1: None})
    lander.land({2: "b"})
    lander.land({2: None})
    retain(None, lander.chain, lander.config, 3, now_us() + 1, SOON)
    retain(None, lander.chain, lander.config, 4, now_us() + 1, SOON)
    assert files_of(lander) == []
    # it remembers the deletes of its own end
    assert [(f.rows, f.gsn_min, f.gsn_max) for f in files_of(lander, Layer.STATE)] == [(1, 4, 4)]
    lander.land({3: "c"})
    assert state_of(lander, 4) == {}
    retain(None, lander.chain, lander.config, 5, now_us() + 1, SOON)
    assert state_of(lander) == {3: "c"}


@pytest.mark.parametrize("policy", [SOON, NEVER])
def test_of_two_compactions_at_once_one_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: StatePolicy
) -> None:
    lander = Lander(tmp_path)
    state, changes = lander.land_many(8), changes_of(lander)

    def other() -> None:
        compact(None, Chain.open(lander.store), lander.config, policy=policy)

    once_at(monkeypatch, "compact.attempt_noted", other)
    mine = compact(None, Chain.open(lander.store), lander.config, policy=policy)
    assert mine.manifests == ()
    assert Chain.open(lander.store).head.n == 9
    assert len(files_of(lander)) == 1
    assert (state_of(lander), changes_of(lander), damage(lander)) == (state, changes, [])


def test_the_first_state_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that they remove tells the two apart."""
    lander = Lander(tmp_path, file_bytes=1024)
    lander.land({n: f"v{n}" for n in range(50)})
    lander.land({1: "a"})

    def other() -> None:
        compact(None, Chain.open(lander.store), lander.config, policy=SOON)

    once_at(monkeypatch, "compact.attempt_noted", other)
    assert compact(None, Chain.open(lander.store), lander.config, policy=SOON).manifests == ()
    assert len(state_of(lander)) == 50


def once_at(monkeypatch: pytest.MonkeyPatch, point: str, do: Callable[[], object]) -> None:
    left = [do]

    def passed(here: str) -> None:
        if here == point and left:
            left.pop()()

    monkeypatch.setattr(compact_module, "fail_point", passed)


def test_landings_go_on_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lander = Lander(tmp_path)
    lander.land_many(6)
    once_at(monkeypatch, "compact.attempt_noted", lambda: (lander.land({50: "x"}), lander.land({51: "y"})))
    done = compact(None, Chain.open(lander.store), lander.config, policy=SOON)
    assert done.manifests == (9,)
    assert [file.gsn_max for file in files_of(lander)] == [7, 8, 6]
    lander.land({52: "z"})
    assert {50: "x", 51: "y", 52: "z"}.items() <= state_of(lander).items()
    assert len({row["_gsn"] for row in changes_of(lander)}) == 9
    assert damage(lander) == []


def test_many_at_once(tmp_path: Path) -> None:
    """Threads of compactions and one of landings: every row once."""
    lander = Lander(tmp_path)
    lander.land_many(3)
    errors: list[BaseException] = []

    def again() -> None:
        try:
            for _ in range(6):
                compact(None, Chain.open(lander.store), lander.config, policy=SOON)
        except BaseException as error:  # noqa: BLE001 - the test shows it
            errors.append(error)

    threads = [Thread(target=again) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(20):
        lander.land({1000 + n: "v"})
    for thread in threads:
        thread.join()
    assert errors == []
    assert [row["_gsn"] for row in changes_of(lander, 3)] == list(range(4, 24))
    assert {1000 + n for n in range(20)} <= state_of(lander).keys()
    assert damage(lander) == []


_KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, ".")
from tests.unit.lake.lander import Lander
from lowwater.lake.chain.chain import Chain
from lowwater.runtime.times import now_us
from lowwater_spark.maintenance.maintain import maintain
from lowwater_spark.maintenance.state_policy import StatePolicy
lander = Lander(Path(sys.argv[1]), grace_hours=0, retention_hours=0)
maintain(None, Chain.open(lander.store), lander.config, now_us() + 10**8, StatePolicy(share=0.0, rows_min=1))
"""


@pytest.mark.parametrize(
    "point", ["compact.attempt_noted", "compact.files_written", "compact.manifest_created", "sweep.some_deleted"]
)
def test_killed_and_done_again(tmp_path: Path, point: str) -> None:
    lander = Lander(tmp_path, grace_hours=0, retention_hours=0)
    state = lander.land_many(6)
    environment = {**os.environ, "LOWWATER_FAIL_AT": point}
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(tmp_path)], env=environment, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert (state_of(lander), damage(lander)) == (state, [])
    maintain(None, Chain.open(lander.store), lander.config, now_us() + 10**8, SOON)
    lander.land({77: "later"})
    maintain(None, Chain.open(lander.store), lander.config, now_us() + 10**8, SOON)
    assert (state_of(lander), damage(lander)) == ({**state, 77: "later"}, [])
    live = {file.path for layer in Layer for file in files_of(lander, layer)}
    assert {stored.path for layer in Layer for stored in lander.store.list(layer)} == live
    assert list(lander.store.list(ATTEMPTS)) == []


def test_retention_by_age(tmp_path: Path) -> None:
    lander = Lander(tmp_path, retention_hours=1)
    lander.land_many(9)
    hour = 3600 * 10**6
    # the lander's transactions commit in the first microseconds of all
    assert retention_gsn(lander.chain, lander.config, hour + 5) == 5
    assert retention_gsn(lander.chain, lander.config, hour) == 0
    assert retention_gsn(lander.chain, lander.config, 2 * hour) == 9
    before = {gsn: state_of(lander, gsn) for gsn in range(5, 10)}
    done = maintain(None, Chain.open(lander.store), lander.config, hour + 5, StatePolicy(share=0.0, rows_min=5))
    chain = Chain.open(lander.store)
    assert chain.head.history_from == 5
    assert chain.manifest(done.manifests[0]).kind is ManifestKind.COMPACT
    assert {gsn: state_of(lander, gsn) for gsn in range(5, 10)} == before
    assert {row["_gsn"] for row in changes_of(lander, 5)} == {6, 7, 8, 9}
    # the state that retention made stays beside the newest one
    assert {file.gsn_max for file in files_of(lander, Layer.STATE)} == {5, 9}


def test_what_is_twice_as_old_goes_in_any_case(tmp_path: Path) -> None:
    lander = Lander(tmp_path, retention_hours=1)
    state = lander.land_many(9)
    hour = 3600 * 10**6
    maintain(None, Chain.open(lander.store), lander.config, hour + 5)
    assert Chain.open(lander.store).head.history_from == 0
    maintain(None, Chain.open(lander.store), lander.config, 2 * hour + 9)
    assert Chain.open(lander.store).head.history_from == 9
    assert (state_of(lander), files_of(lander)) == (state, [])


def test_what_is_merged_with_what() -> None:
    def file(number: int, size: int, schema_id: int = 1) -> File:
        return File(
            path=f"{number}", table="t", schema_id=schema_id, key=("id",), rows=1, bytes=size, sha256="",
            gsn_min=number, gsn_max=number,
        )  # fmt: skip

    def merged(*files: File) -> list[list[str]]:
        return [[f.path for f in group] for group in groups(files, 100)]

    assert merged(file(1, 10)) == []
    assert merged(file(1, 10), file(2, 10), file(3, 90), file(4, 10)) == [["1", "2"]]
    assert merged(file(1, 10), file(2, 10), file(3, 10, 2), file(4, 10, 2)) == [["1", "2"], ["3", "4"]]
    assert merged(*(file(n, 40) for n in range(7))) == [["0", "1", "2"], ["3", "4", "5"]]
    # what was merged before waits until as much has come again
    assert merged(file(1, 40), file(2, 5), file(3, 5)) == [["2", "3"]]
    assert merged(file(1, 40), file(2, 20), file(3, 20)) == [["1", "2", "3"]]
