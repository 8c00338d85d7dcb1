"""What an attempt does next, as one table of cases: the recovery rows of two-phase state, one chain for all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lowwater.errors import AlreadyThereError, LandingConflictError, StoreError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Landed, Layer, Manifest, ManifestKind
from lowwater.lake.store.local import LocalDirectory
from lowwater_spark.ledger.ledger import Draft, attempt_from_offset, commit_draft, conflict, land_attempt


def _file(name: str, copy: str = "", chunk: int = 0, table: str = "s.n.t") -> File:
    layer = Layer.COPY if copy else Layer.STREAM
    return File(
        path=name, table=table, layer=layer, schema_id=1, key=("ID",), rows=1, bytes=1, sha256="0",
        gsn_min=1, gsn_max=1, copy_id=copy, chunk=chunk,
    )  # fmt: skip


def _land(attempt: str, start: int, end: int, gsn: int, transactions: int, *files: File) -> Draft:
    landed = Landed(topic="t", topic_id="1", offset=end)
    return Draft(ManifestKind.LAND, "g", attempt, files, start, landed, gsn, transactions)


def _copy(attempt: str, copy: str, *chunks: int, table: str = "s.n.t") -> Draft:
    return Draft(ManifestKind.COPY, "g", attempt, tuple(_file(f"{attempt}-{c}", copy, c, table) for c in chunks))


def _close(attempt: str, *copies: str) -> Draft:
    return Draft(ManifestKind.COPY, "g", attempt, closed_copies=copies)


def _compact(attempt: str, *removed: File) -> Draft:
    return Draft(ManifestKind.COMPACT, "g", attempt, (_file(f"{attempt}-out"),), removed=removed)


A, B = _file("a"), _file("b")


@dataclass(frozen=True)
class Case:
    test_name: str
    #: what has landed before, in this order
    before: list[Draft] = field(default_factory=list)
    #: what is tried now
    draft: Draft = field(default_factory=lambda: _land("mine", 0, 10, 2, 2))
    #: part of why it never can; empty if it lands
    refused: str = ""


CASES = [
    # full refresh: chunks are planned → prepared → landed
    Case("chunk prepared, not committed: it is tried again", [], _copy("mine", "c1", 1)),
    Case("chunk committed, not acknowledged: another try is refused", [_copy("x", "c1", 1)], _copy("mine", "c1", 1),
         "chunk 1 of copy c1 has landed"),
    Case("partial commit: the other chunks still land", [_copy("x", "c1", 1)], _copy("mine", "c1", 2)),
    Case("one attempt with a landed and a new chunk is refused whole", [_copy("x", "c1", 1)], _copy("mine", "c1", 1, 2),
         "has landed"),
    Case("the same chunk of a new copy lands", [_copy("x", "c1", 1)], _copy("mine", "c2", 1)),
    Case("stream gone: its copy was closed, nothing of it lands", [_close("x", "c1")], _copy("mine", "c1", 2),
         "copy c1 is closed"),
    Case("closing one copy leaves the others", [_close("x", "c1")], _copy("mine", "c2", 2)),
    # incremental and CDC: one place for all streams, the offset that the last manifest names
    Case("first landing", [], _land("mine", 5, 10, 2, 2)),
    Case("prepared, not committed: from the same place again", [_land("x", 0, 10, 2, 2)], _land("mine", 10, 20, 5, 3)),
    Case("committed, not acknowledged: the same offsets are refused", [_land("x", 0, 10, 2, 2)],
         _land("mine", 0, 10, 2, 2), "have landed, up to 10"),
    Case("committed with another end: still refused", [_land("x", 0, 10, 2, 2)], _land("mine", 0, 30, 9, 9),
         "have landed"),
    Case("ahead of what has landed: refused, it would leave a gap", [_land("x", 0, 10, 2, 2)],
         _land("mine", 20, 30, 9, 2), "have landed, up to 10"),
    Case("right offsets, wrong gsn", [_land("x", 0, 10, 2, 2)], _land("mine", 10, 20, 9, 2), "gsn 2 has landed"),
    Case("mixed states: chunks landed behind us do not matter", [_land("x", 0, 10, 2, 2), _copy("y", "c1", 1)],
         _land("mine", 10, 20, 5, 3)),
    Case("mixed states: a landing does not matter to a chunk", [_copy("y", "c1", 1), _land("x", 0, 10, 2, 2)],
         _copy("mine", "c1", 2)),
    Case("a landing without rows still moves on", [_land("x", 0, 10, 2, 2)], _land("mine", 10, 12, 3, 1)),
    # compaction
    Case("its inputs are live", [_land("x", 0, 10, 2, 2, A, B)], _compact("mine", A, B)),
    Case("one input was merged by another", [_land("x", 0, 10, 2, 2, A, B), _compact("y", A)], _compact("mine", A, B),
         "no longer live"),
    Case("landings beside it do not matter", [_land("x", 0, 10, 2, 2, A), _land("y", 10, 20, 3, 1, B)],
         _compact("mine", A)),
]  # fmt: skip


def _chain(directory: Path, drafts: list[Draft]) -> Chain:
    chain = Chain.open(LocalDirectory(directory))
    for draft in drafts:
        commit_draft(chain, draft)
    return chain


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.test_name)
def test_recovery(case: Case, tmp_path: Path) -> None:
    chain = _chain(tmp_path, case.before)
    why = conflict(case.draft, chain)
    if case.refused:
        assert why is not None
        assert case.refused in why
        with pytest.raises(LandingConflictError, match="cannot land"):
            commit_draft(chain, case.draft)
    else:
        assert why is None
        manifest = commit_draft(chain, case.draft)
        assert manifest.n == len(case.before) + 1
        assert manifest.attempt == "mine"


class Store(LocalDirectory):
    """Its answers to `create` get lost, before or after the deed; or another one's deed comes first."""

    def __init__(self, directory: Path, faults: list[str], other: Draft | None = None) -> None:
        super().__init__(directory)
        self._directory = directory
        self._faults = faults
        self._other = other

    def create(self, path: str, data: bytes) -> None:
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "not done":
            raise StoreError("the connection was lost")
        if fault == "another first":
            assert self._other is not None
            commit_draft(Chain.open(LocalDirectory(self._directory)), self._other)
        super().create(path, data)
        if fault == "done":
            raise StoreError("the connection was lost")
        if fault == "done and asked twice":
            raise AlreadyThereError("it is there")


def _commit(directory: Path, draft: Draft, faults: list[str], other: Draft | None = None) -> Manifest:
    chain = Chain.open(Store(directory, faults, other))
    return commit_draft(chain, draft)


@pytest.mark.parametrize("faults", [["done"], ["not done"], ["not done", "done"], ["done and asked twice"]])
def test_a_create_whose_answer_was_lost_is_settled_by_reading_back(tmp_path: Path, faults: list[str]) -> None:
    manifest = _commit(tmp_path, _land("mine", 0, 10, 2, 2), list(faults))
    assert (manifest.n, manifest.attempt) == (1, "mine")
    assert Chain.open(LocalDirectory(tmp_path)).head.n == 1, "it is there once"


def test_a_number_that_is_taken_by_one_that_does_not_conflict(tmp_path: Path) -> None:
    manifest = _commit(tmp_path, _land("mine", 0, 10, 2, 2), ["another first"], _copy("theirs", "c1", 1))
    assert (manifest.n, manifest.gsn, manifest.landed.offset) == (2, 2, 10)


def test_landed_and_gsn_are_worked_out_again_at_every_try(tmp_path: Path) -> None:
    manifest = _commit(tmp_path, _copy("mine", "c1", 1), ["another first"], _land("theirs", 0, 10, 2, 2))
    assert (manifest.n, manifest.gsn, manifest.landed.offset) == (2, 2, 10)


def test_a_number_that_is_taken_by_one_that_does(tmp_path: Path) -> None:
    with pytest.raises(LandingConflictError):
        _commit(tmp_path, _land("mine", 0, 10, 2, 2), ["another first"], _land("theirs", 0, 30, 3, 3))
    chain = Chain.open(LocalDirectory(tmp_path))
    assert [m.attempt for m in chain.log()] == ["theirs"]


def test_a_store_that_never_answers_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lowwater_spark.ledger.ledger.time.sleep", lambda _: None)
    with pytest.raises(StoreError):
        _commit(tmp_path, _land("mine", 0, 10, 2, 2), ["not done"] * 9)


def test_an_attempt_says_where_it_begins() -> None:
    assert attempt_from_offset(land_attempt(1234)) == 1234
    assert attempt_from_offset("compact-00000000000000000012-abc") is None
