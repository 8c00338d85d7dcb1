"""The sweep removes what it may, and nothing else, however old."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.lake.lander import NAME, Lander

from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ATTEMPTS, Layer
from lowwater.runtime.times import now_us
from lowwater_spark.ledger.attempts import AttemptNote, write_note
from lowwater_spark.ledger.ledger import compact_attempt, land_attempt
from lowwater_spark.maintenance import compact as compact_module
from lowwater_spark.maintenance.compact import compact
from lowwater_spark.maintenance.state_policy import StatePolicy
from lowwater_spark.maintenance.sweep import sweep

HOUR = 3600 * 10**6
NEVER = StatePolicy(rows_min=1 << 60)


def stored(lander: Lander) -> set[str]:
    return {found.path for layer in Layer for found in lander.store.list(layer)}


def swept(lander: Lander, hours: float) -> int:
    return sweep(Chain.open(lander.store), lander.config, now_us() + int(hours * HOUR)).files


def test_merged_files_go_after_the_grace(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=24)
    lander.land_many(4)
    compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
    assert len(stored(lander)) == 5
    assert swept(lander, 23) == 0
    assert swept(lander, 25) == 4
    assert swept(lander, 25) == 0
    assert len(stored(lander)) == 1
    assert list(lander.store.list(ATTEMPTS)) == []


def test_a_file_that_was_merged_twice_has_the_grace_of_its_own_removal(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=1)
    lander.land_many(3)
    compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
    (first,) = {file.path for file in Chain.open(lander.store).files(NAME)}
    lander.land_many(3)
    compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
    assert first not in {file.path for file in Chain.open(lander.store).files(NAME)}
    # as if the second one had come two hours later
    assert swept(lander, 0) == 0
    assert first in stored(lander)
    assert swept(lander, 2) == 7
    assert list(lander.store.list(ATTEMPTS)) == []


def test_files_of_a_landing_that_may_still_come_stay(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=1)
    lander.land_many(2)
    attempt, (file,) = lander.write({2: "b"})
    # a compaction takes the number that it wanted: that proves nothing
    assert compact(None, Chain.open(lander.store), lander.config, policy=NEVER).manifests == (3,)
    assert swept(lander, 1000) == 2
    assert file.path in stored(lander)
    assert [landed.path for landed in lander.land({2: "b"}, attempt).files] == [file.path]
    assert swept(lander, 1000) == 0


def test_files_of_a_landing_that_has_lost_go_after_the_grace(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=1)
    lander.land({1: "a"})
    _, (lost,) = lander.write({2: "b"})
    lander.land({2: "c"})
    assert swept(lander, 0.5) == 0
    assert swept(lander, 2) == 1
    assert lost.path not in stored(lander)


def test_what_a_landing_wrote_twice_goes_and_what_it_landed_stays(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=1)
    attempt = land_attempt(0)
    _, (twin,) = lander.write({1: "a"}, attempt, tag="other")
    manifest = lander.land({1: "a"}, attempt)
    assert swept(lander, 2) == 1
    assert stored(lander) == {file.path for file in manifest.files}
    assert twin.path not in stored(lander)


def test_files_of_a_compaction_that_may_still_come_stay(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=1)
    lander.land_many(3)
    inputs = lander.chain.files(NAME)
    attempt = compact_attempt(lander.chain.head.n)
    note = AttemptNote(attempt=attempt, n=lander.chain.head.n, removed=tuple(f.path for f in inputs))
    write_note(lander.store, note)
    _, (paused,) = lander.write({9: "x"}, attempt)
    assert swept(lander, 1000) == 0
    assert paused.path in stored(lander)
    # another one merges one of its inputs: now it never will
    compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
    assert swept(lander, 0) == 0
    assert swept(lander, 2) == 4
    assert paused.path not in stored(lander)
    assert list(lander.store.list(ATTEMPTS)) == []


def test_files_of_nobody_stay(tmp_path: Path) -> None:
    lander = Lander(tmp_path, grace_hours=0)
    lander.land_many(2)
    _, (unknown,) = lander.write({9: "x"}, compact_attempt(1))
    lander.store.put(f"copy/{NAME}/copy-7-aaaa-1.parquet", b"a chunk on its way")
    lander.store.put(f"stream/{NAME}/by-hand.parquet", b"?")
    assert swept(lander, 1000) == 0
    assert unknown.path in stored(lander)


def test_a_paused_compaction_whose_files_are_gone_cannot_land(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the sweep takes for proof is what the commit refuses."""
    lander = Lander(tmp_path, grace_hours=0)
    lander.land_many(4)
    held: list[object] = []

    def pause(here: str) -> None:
        if here == "compact.attempt_noted" and not held:
            held.append(here)
            compact(None, Chain.open(lander.store), lander.config, policy=NEVER)
            swept(lander, 1)

    monkeypatch.setattr(compact_module, "fail_point", pause)
    # it reads files that are gone, or it loses: neither is an error
    assert compact(None, Chain.open(lander.store), lander.config, policy=NEVER).manifests == ()
    assert len(Chain.open(lander.store).files(NAME)) == 1
