"""What is to be copied and what is closed, how a table is cut, what may be swept: without a database or Spark."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from psycopg import sql
from tests.unit.lake.lander import NAME, SCHEMA_ID, TABLE, Lander

from lowwater.errors import CodecError, LandingConflictError
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import ATTEMPTS, CopiedTables, File, Layer, ManifestKind
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater.runtime.times import now_us
from lowwater_extractor.sources.postgres.snapshot.chunks import (
    BYTES_PER_CHUNK_MAX,
    KEY_CHUNKS_MAX,
    Bounds,
    BoundsKind,
    key_chunks,
    number_cuts,
    page_chunks,
    page_cuts,
)
from lowwater_spark.copy.plan import CopyPlans
from lowwater_spark.copy.progress import Progress
from lowwater_spark.landing.files import LakeFiles
from lowwater_spark.ledger.attempts import AttemptNote, write_note
from lowwater_spark.ledger.ledger import Draft, commit_draft, copy_attempt
from lowwater_spark.maintenance.sweep import sweep

HOUR = 3600 * 10**6


@dataclass
class Said:
    """A chain, as far as plans ask it."""

    landed_chunks: set[tuple[str, int]] = field(default_factory=set)
    closed_copies: set[str] = field(default_factory=set)
    copied: list[CopiedTables] = field(default_factory=list)

    def readable(self, copy: str) -> None:
        self.copied.append(CopiedTables(gsn=len(self.copied) + 1, source="s", copy_id=copy, tables=("s.n.t",)))


def chunks(copy: str, count: int, replaces: str = "", table: str = "n.t", source: str = "s") -> list[Chunk]:
    at = Order(5, 1)
    return [Chunk(source, copy, table, n, count, 7, b"", at, at, 100, replaces) for n in range(1, count + 1)]


def pending(plans: CopyPlans, said: Said, *held: str) -> list[tuple[str, int]]:
    plans.settle(said)
    return [(chunk.copy, chunk.chunk) for chunk in plans.pending(held)]


def closings(plans: CopyPlans, said: Said) -> list[str]:
    plans.settle(said)
    return [plan.copy for plan in plans.closings(said)]


# -- which chunks -------------------------------------------------------------------------------------------------


def test_what_is_planned_and_has_not_landed_is_pending() -> None:
    plans, said = CopyPlans(), Said()
    plans.add(chunks("a", 3))
    plans.add(chunks("b", 1, table="n.u", source="other"))
    plans.add(chunks("a", 3))  # a record that is read twice
    said.landed_chunks = {("a", 2), ("b", 2)}
    assert pending(plans, said) == [("a", 1), ("a", 3), ("b", 1)]
    assert pending(plans, said, "other") == [("a", 1), ("a", 3)]
    assert pending(plans, said, "a") == [("b", 1)]
    said.landed_chunks |= {("a", 1), ("a", 3), ("b", 1)}
    assert pending(plans, said) == []
    assert plans.is_settled


def test_a_copy_that_was_replaced_is_let_alone_and_closed() -> None:
    plans, said = CopyPlans(), Said()
    plans.add(chunks("a", 2))
    said.landed_chunks = {("a", 1)}
    assert closings(plans, said) == []
    plans.add(chunks("b", 2, replaces="a"))
    assert pending(plans, said) == [("b", 1), ("b", 2)]
    assert closings(plans, said) == ["a"]
    said.closed_copies, said.landed_chunks = {"a"}, {("b", 1), ("b", 2)}
    assert closings(plans, said) == []
    assert plans.is_settled


def test_a_copy_whose_table_is_gone_is_closed_and_nothing_is_waited_for() -> None:
    plans, said = CopyPlans(), Said(landed_chunks={("a", 1)})
    at = Order(5, 1)
    plans.add([*chunks("a", 2), Chunk("s", "b", "n.t", 0, 0, 7, b"", at, at, 0, "a")])
    assert pending(plans, said) == []
    assert closings(plans, said) == ["a"]
    said.closed_copies = {"a"}
    assert closings(plans, said) == []
    assert plans.is_settled


def test_a_plan_that_is_read_again_after_it_was_closed_is_not_pending() -> None:
    plans, said = CopyPlans(), Said(closed_copies={"a"})
    plans.add([*chunks("a", 2), *chunks("b", 1, replaces="a")])
    assert pending(plans, said) == [("b", 1)]
    assert closings(plans, said) == []


def test_a_whole_copy_is_closed_only_when_it_can_no_longer_become_readable() -> None:
    plans, said = CopyPlans(), Said(landed_chunks={("a", 1), ("b", 1), ("c", 1)})
    plans.add([*chunks("a", 1), *chunks("b", 1, replaces="a"), *chunks("c", 1, replaces="b")])
    assert closings(plans, said) == []
    assert not plans.is_settled
    said.readable("a")
    assert closings(plans, said) == []
    said.readable("c")
    assert closings(plans, said) == ["b"]


def test_a_readable_copy_is_never_closed() -> None:
    plans, said = CopyPlans(), Said(landed_chunks={("a", 1)})
    said.readable("a")
    plans.add([*chunks("a", 1), *chunks("b", 2, replaces="a")])
    assert closings(plans, said) == []
    assert pending(plans, said) == [("b", 1), ("b", 2)]


def test_progress_says_how_far_and_how_long() -> None:
    now = [0.0]
    plans, said, progress = CopyPlans(), Said(landed_chunks={("a", 1)}), Progress(lambda: now[0])
    plans.add([*chunks("a", 4), *chunks("b", 1, table="n.u")])
    plans.settle(said)
    progress.begin("a", 90)
    now[0] = 2.0
    said.landed_chunks.add(("a", 2))
    progress.add("a", 100)
    plans.settle(said)
    assert progress.hold("b", "for a new plan: gone", 60, needs_plan=True)
    assert not progress.hold("b", "for a new plan: gone", 60, needs_plan=True)
    shown = progress.show(plans.active())
    first, second = shown["tables"]
    assert first == {
        "table": "s.n.t", "copy": "a", "chunks_done": 2, "chunks": 4, "rows": 190, "rows_per_second": 50,
        "seconds_left": 4,
    }  # fmt: skip
    assert second["waiting"] == "for a new plan: gone"
    assert (shown["state"], shown["chunks_left"], shown["waiting_for_a_plan"]) == ("copying", 3, 1)
    assert progress.held() == {"b"}
    now[0] = 100.0
    assert progress.held() == set()


# -- how a table is cut -------------------------------------------------------------------------------------------


def test_pages_are_cut_into_chunks_of_about_one_size() -> None:
    assert page_cuts(0, 0, 0, 1000) == []
    assert page_cuts(1, 100, 8192, 1000) == []
    assert page_cuts(100, 10_000, 819_200, 2_500) == [25, 50, 75]
    # a page is never cut, and there are no more chunks than pages
    assert page_cuts(3, 1_000, 24_576, 1) == [1, 2]
    # wide rows: by what they take
    assert page_cuts(100, 100, 10 * BYTES_PER_CHUNK_MAX, 1_000) == list(range(10, 100, 10))


def test_chunks_are_the_whole_table_and_no_page_twice() -> None:
    rng = random.Random(7)
    for _ in range(200):
        pages, rows, per_chunk = rng.randint(1, 500), rng.randint(0, 10_000), rng.randint(1, 3_000)
        made = page_chunks(Bounds("s", "t", only=True), page_cuts(pages, rows, 0, per_chunk), rows)
        bounds = [chunk.bounds for chunk in made]
        assert bounds[0].from_page is None
        assert bounds[-1].to_page is None
        assert all(left.to_page == right.from_page for left, right in pairwise(bounds))
        assert all(b.kind is BoundsKind.CTID and b.only for b in bounds)
        assert sum(chunk.rows_estimate for chunk in made) >= rows


def test_numbers_are_cut_evenly_and_not_too_often() -> None:
    assert number_cuts(1, 100, 100, 25) == [26, 51, 76]
    assert number_cuts(-5, 4, 1_000, 100) == [-4, -3, -2, -1, 0, 1, 2, 3, 4]
    assert len(number_cuts(0, 1 << 62, 1 << 40, 1)) == KEY_CHUNKS_MAX - 1
    made = key_chunks(Bounds("s", "t"), "id", [10, 20], 30)
    assert [(c.bounds.from_key, c.bounds.to_key) for c in made] == [
        (None, ("10",)),
        (("10",), ("20",)),
        (("20",), None),
    ]


def test_bounds_survive_the_topic() -> None:
    for bounds in (
        Bounds("s", "t"),
        Bounds("s", "t", BoundsKind.CTID, "00000003-0000001B-1", 0, 10, only=True),
        Bounds("ä", '"', BoundsKind.KEY, key=("a", "b"), from_key=("1", ""), to_key=("2", "\\'")),
    ):
        assert Bounds.decode(bounds.encode()) == bounds
    for wrong in (b"", b"[]", b"{}", b'{"kind": "by moon"}', b'{"schema": "s", "table": "t", "kind": "whole", "x": 1}'):
        with pytest.raises(CodecError, match="bounds cannot be read"):
            Bounds.decode(wrong)


def test_bounds_are_quoted_by_the_driver() -> None:
    def text(part: sql.Composable) -> str:
        return part.as_string(None)

    pages = Bounds('s"', "t", BoundsKind.CTID, from_page=3, to_page=5, only=True)
    assert text(pages.relation) == 'ONLY "s"""."t"'
    assert text(pages.where) == "ctid >= '(3,0)'::tid AND ctid < '(5,0)'::tid"
    keys = Bounds("s", "t", BoundsKind.KEY, key=("a", 'b"'), from_key=("1", "it's"), to_key=("2", "x"))
    key = '("a", "b""")'
    assert text(keys.where) == f"{key} >= ('1', 'it''s') AND ({key} >= ('2', 'x')) IS NOT TRUE"
    assert text(Bounds("s", "t").where) == "true"


# -- what a killed copy leaves behind ------------------------------------------------------------------------------


class Copier(Lander):
    """Lands chunks as Spark's side does, and leaves some half done."""

    def begin(self, *which: tuple[str, int]) -> tuple[str, list[File]]:
        """The files of an attempt that has not landed."""
        self.chain.refresh()
        attempt = copy_attempt(self.chain.head.n)
        write_note(self.store, AttemptNote(attempt=attempt, n=self.chain.head.n, removed=(), chunks=which))
        found = []
        for copy, chunk in which:
            with LakeFiles(self.store, attempt, f"{copy}{chunk}-x", self.config.file_bytes) as files:
                files.add(SCHEMA_ID, TABLE, TABLE.copy_schema.empty_table(), Layer.COPY)
                found += [f.model_copy(update={"copy_id": copy, "chunk": chunk}) for f in files.close()]
        return attempt, found

    def commit(self, attempt: str, files: list[File]) -> None:
        commit_draft(self.chain, Draft(ManifestKind.COPY, "g", attempt, tuple(files)), points="copy")

    def sweep(self, hours: float) -> int:
        return sweep(Chain.open(self.store), self.config, now_us() + int(hours * HOUR)).files


def test_files_of_a_copy_that_may_still_come_stay(tmp_path: Path) -> None:
    copier = Copier(tmp_path, grace_hours=1)
    copier.land({1: "a"})
    killed, left = copier.begin(("a", 1), ("a", 2))
    assert copier.sweep(1000) == 0
    # one of its chunks is landed by another: it may have been about to land the other one alone
    copier.commit(*copier.begin(("a", 1)))
    assert copier.sweep(1000) == 0
    copier.commit(killed, [file for file in left if file.chunk == 2])
    # its first chunk never will
    assert copier.sweep(0) == 0
    assert copier.sweep(2) == 1
    assert len(list(copier.store.list(Layer.COPY))) == 2
    assert not list(copier.store.list(ATTEMPTS))


def test_files_of_a_copy_that_has_lost_go_after_the_grace(tmp_path: Path) -> None:
    copier = Copier(tmp_path, grace_hours=1)
    killed, left = copier.begin(("a", 1), ("b", 1))
    copier.commit(*copier.begin(("a", 1)))
    assert copier.sweep(1000) == 0
    commit_draft(copier.chain, Draft(ManifestKind.COPY, "g", copy_attempt(1), closed_copies=("b",)), points="copy")
    assert copier.sweep(0) == 0
    with pytest.raises(LandingConflictError):
        copier.commit(killed, left)
    assert copier.sweep(2) == 2
    assert not list(copier.store.list(ATTEMPTS))
    assert [file.copy_id for file in copier.chain.files(NAME)] == ["a"]


def test_a_copy_is_closed_with_all_that_had_landed_of_it(tmp_path: Path) -> None:
    """One that wakes up between the look and the closing makes it look again."""
    copier = Copier(tmp_path, grace_hours=1)
    copier.commit(*copier.begin(("a", 1)))
    known = frozenset(copier.chain.landed_chunks)
    removed = tuple(copier.chain.files(NAME))
    late = copier.begin(("a", 2))
    copier.commit(*late)

    def close(attempt: str, files: tuple[File, ...], landed: frozenset[tuple[str, int]]) -> None:
        draft = Draft(ManifestKind.COPY, "g", attempt, removed=files, closed_copies=("a",), closed_chunks=landed)
        commit_draft(copier.chain, draft, points="copy")

    with pytest.raises(LandingConflictError, match="more chunks of the copies"):
        close(copy_attempt(2), removed, known)
    close(copy_attempt(2), tuple(copier.chain.files(NAME)), frozenset(copier.chain.landed_chunks))
    assert copier.chain.files(NAME) == []
    with pytest.raises(LandingConflictError, match="is closed"):
        close(copy_attempt(3), (), frozenset())
