"""With checkpoints a chain says the same as without, only sooner; and none of them is needed."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.s3 import S3Server
from tests.unit.lake.chains import MemoryStore, Writer

from lowwater.lake.chain.chain import Chain, Head, TableSummary
from lowwater.lake.chain.checkpoint import HINT, from_runs, read_hint, remove_old_checkpoints, to_runs
from lowwater.lake.chain.checkpoint_parts import DIRECTORY
from lowwater.lake.chain.manifest import File, Manifest, ManifestKind, manifest_path
from lowwater.lake.read.verify import verify
from lowwater.lake.store.local import LocalDirectory

TABLES = ["a", "b", "c"]


class Plain:
    """What the manifests say, worked out in the plainest way."""

    def __init__(self) -> None:
        self.live: list[File] = []
        self.ever: list[File] = []
        self.last: Manifest | None = None

    def add(self, manifest: Manifest) -> None:
        self.live = [f for f in self.live if f.path not in manifest.removed] + list(manifest.files)
        self.ever += manifest.files
        self.last = manifest

    def check(self, chain: Chain, rng: random.Random) -> None:
        assert chain.tables() == sorted({f.table for f in self.ever})
        for table in TABLES:
            of_table = [f for f in self.live if f.table == table]
            assert chain.files(table) == of_table
            assert chain.summary(table) == TableSummary.of(of_table)
            low, high = sorted(rng.sample(range(1, 60), 2))
            wanted = [f for f in of_table if f.gsn_max > low and f.gsn_min <= high]
            assert chain.files(table, low, high) == wanted
        for file in self.ever:
            assert chain.is_live(file) == (file in self.live)
        assert self.last is not None
        assert (chain.head.n, chain.head.gsn, chain.head.landed) == (self.last.n, self.last.gsn, self.last.landed)


def step(writer: Writer, plain: Plain, rng: random.Random) -> None:
    table = rng.choice(TABLES)
    inputs = [f for f in plain.live if f.table == table and not f.copy_id]
    what = rng.random()
    if what < 0.25 and len(inputs) > 1:
        # neighbours mostly, and now and then whatever there is
        begin = rng.randrange(len(inputs) - 1)
        chosen = inputs[begin : begin + rng.randint(2, 6)] if rng.random() < 0.8 else rng.sample(inputs, 2)
        plain.add(writer.compact(chosen))
    elif what < 0.3 and inputs:
        plain.add(writer.append(ManifestKind.COMPACT, removed=tuple(f.path for f in inputs)))
    elif what < 0.4:
        plain.add(writer.copy(table, f"copy-{rng.randint(1, 3)}", writer.n))
    elif what < 0.43:
        plain.add(writer.append(ManifestKind.COPY, closed_copies=(f"copy-{rng.randint(1, 3)}",)))
    else:
        plain.add(writer.land(*rng.sample(TABLES, rng.randint(0, 3)), transactions=rng.randint(1, 3)))


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 60), part_entries_max=st.sampled_from([2, 5, 50_000]))
def test_checkpoints_at_random_places_change_nothing(seed: int, steps: int, part_entries_max: int) -> None:
    rng = random.Random(seed)
    store = MemoryStore()
    writer, plain = Writer(store), Plain()
    kept = [Chain(store, checkpoint_every=rng.choice([1, 3, 1000]), part_entries_max=part_entries_max) for _ in "abc"]
    for _ in range(steps):
        step(writer, plain, rng)
        chain = rng.choice(kept)
        if rng.random() < 0.4:
            chain.refresh()
            chain.write_checkpoint_if_due() if rng.random() < 0.5 else chain.write_checkpoint()
            plain.check(chain, rng)
    opened = Chain.open(store)
    unaided = Chain(store)
    unaided.refresh()
    for chain in (opened, unaided, *kept):
        chain.refresh()
        plain.check(chain, rng)
        assert chain.head == unaided.head
        assert chain.versions == unaided.versions
        assert chain.closed_copies == unaided.closed_copies
        assert chain.landed_chunks == unaided.landed_chunks
        assert chain.last_schema_ids == unaided.last_schema_ids
    assert not [damage for damage in verify(store) if damage.path.startswith("_ledger")]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_whatever_is_lost_beside_the_chain_nothing_is_wrong(seed: int) -> None:
    rng = random.Random(seed)
    store = MemoryStore()
    writer, plain = Writer(store), Plain()
    chain = Chain(store, checkpoint_every=3)
    for _ in range(rng.randint(5, 40)):
        step(writer, plain, rng)
        chain.refresh()
        chain.write_checkpoint_if_due()
    opened = Chain.open(store)
    beside = sorted(path for path in store.objects if path == HINT or path.startswith(DIRECTORY))
    for path in rng.sample(beside, rng.randint(0, len(beside))):
        damaged = [b"", b"{}", store.objects[path][:-1], store.objects[path] + b" "]
        if rng.random() < 0.5:
            del store.objects[path]
        else:
            store.objects[path] = rng.choice(damaged)
    chains = [opened, chain, Chain.open(store)]
    for each in chains:
        plain.check(each, rng)
    for each in chains:
        step(writer, plain, rng)
        each.refresh()
        each.write_checkpoint()
        plain.check(each, rng)
        plain.check(Chain.open(store), rng)


def test_opening_does_not_grow_with_history() -> None:
    store = MemoryStore()
    writer = Writer(store)
    chain = Chain.open(store)
    live: list[File] = []
    parts_max = 0
    for n in range(1, 20_051):
        live += writer.land("a" if n % 3 else "b").files
        if n % 10 == 0:
            # as a lake is kept: small files become larger ones
            inputs = [f for f in live if f.table == "a"]
            merged = writer.compact(inputs).files
            live = [f for f in live if f.table == "b"]
            if n % 1000 == 0:
                live += merged
        if n % 50 == 0:
            chain.refresh()
            chain.write_checkpoint_if_due()
            parts_max = max(parts_max, len(chain._fold.base.parts))
    assert parts_max <= 2 * math.log2(20_000)
    assert store.asked["list"] == 0

    store.asked.clear()
    opened = Chain.open(store)
    assert opened.head.n == writer.n
    assert store.asked["get"] <= 120
    assert opened.summary("b").files == 20_050 // 3
    assert store.asked["list"] == 0

    store.asked.clear()
    assert opened.first_after(5_000_000) == next(m.n for m in opened.log(5000, 6000) if m.commit_ts_us > 5_000_000)
    recent = opened.files("b", opened.head.gsn - 200)
    assert 60 <= len(recent) <= 70
    assert opened._reader._parts.keys() < {part.path for part in opened._fold.base.parts}, "old parts are not read"


def test_a_long_lived_reader_does_not_hold_all_that_came() -> None:
    store = MemoryStore()
    writer = Writer(store)
    chain, reader = Chain.open(store), Chain.open(store)
    for _ in range(2000):
        writer.land("a")
        chain.refresh()
        chain.write_checkpoint_if_due()
        reader.refresh()
    assert sum(map(len, reader._fold.tail.values())) <= 500
    assert len(reader.files("a")) == 2000


def test_two_writers_of_the_same_checkpoint_do_no_harm() -> None:
    store = MemoryStore()
    writer = Writer(store)
    first, second = Chain.open(store), Chain.open(store)
    for _ in range(100):
        writer.land("a", "b")
    first.refresh()
    second.refresh()
    assert first.write_checkpoint_if_due() is True
    objects = dict(store.objects)
    second.write_checkpoint()
    assert store.objects == objects, "the same bytes under the same names"
    third = Chain(store)
    third.refresh()
    assert third.write_checkpoint_if_due() is False, "taken over"


def test_a_late_writer_does_not_move_the_hint_back() -> None:
    store = MemoryStore()
    writer = Writer(store)
    for _ in range(100):
        writer.land("a")
    late = Chain.open(store)
    for _ in range(100):
        writer.land("a")
    Chain.open(store).write_checkpoint()
    late.write_checkpoint()
    assert [named.n for named in read_hint(store)] == [200, 100]


def test_a_chain_put_back_from_a_backup_is_not_taken_for_the_one_that_was_folded() -> None:
    store = MemoryStore()
    writer = Writer(store)
    for _ in range(80):
        writer.land("a")
    kept = dict(store.objects)
    for _ in range(70):
        writer.land("a")
    Chain.open(store).write_checkpoint()
    store.objects = {
        path: data for path, data in store.objects.items() if path in kept or path not in map(manifest_path, range(200))
    }
    chain = Chain.open(store)
    assert chain.head.n == 80
    # another history grows on it, past the place of the old checkpoint
    other = Writer(store)
    other.n, other.gsn, other.offset, other._previous = 80, 80, 160, chain.head.digest
    for _ in range(100):
        other.land("b")
    opened = Chain.open(store)
    assert opened.head.n == 180
    assert (len(opened.files("a")), len(opened.files("b"))) == (80, 100)


def test_old_checkpoints_are_removed() -> None:
    store = MemoryStore()
    writer = Writer(store)
    chain = Chain.open(store)
    for n in range(1000):
        written = writer.land("a")
        if n % 7 == 6:
            writer.compact(list(written.files))
        chain.refresh()
        chain.write_checkpoint_if_due()
    before = len(list(store.list(DIRECTORY)))
    assert remove_old_checkpoints(store, before_us=-1) == 0, "too young"
    assert remove_old_checkpoints(store, before_us=1) > 0
    assert 2 < len(list(store.list(DIRECTORY))) < before
    store.asked.clear()
    assert len(Chain.open(store).files("a")) == len(chain.files("a"))
    assert store.asked["get"] <= 140


@pytest.mark.parametrize("point", ["lake.checkpoint_parts", "lake.checkpoint_written"])
def test_killed_in_the_middle_of_a_checkpoint(tmp_path: Path, point: str) -> None:
    store = LocalDirectory(tmp_path)
    writer = Writer(store)
    for _ in range(20):
        writer.land("a")
    code = (
        "import sys; from pathlib import Path; from lowwater.lake.chain.chain import Chain; "
        "from lowwater.lake.store.local import LocalDirectory; "
        "Chain.open(LocalDirectory(Path(sys.argv[1]))).write_checkpoint()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    killed = subprocess.run(command, env={**os.environ, "LOWWATER_FAIL_AT": point}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_hint(store) == []
    assert len(Chain.open(store).files("a")) == 20
    subprocess.run(command, check=True)
    assert [named.n for named in read_hint(store)] == [20]
    opened = Chain.open(store)
    assert (opened.head.n, len(opened.files("a"))) == (20, 20)
    assert not [damage for damage in verify(store) if damage.path.startswith("_ledger")]


def test_on_s3(s3: S3Server) -> None:
    from lowwater.lake.store.object import ObjectStore

    store = ObjectStore(s3.lake_config())
    writer = Writer(store)
    chain = Chain(store, checkpoint_every=20)
    for _ in range(70):
        writer.land("a", "b")
        chain.refresh()
        chain.write_checkpoint_if_due()
    assert [named.n for named in read_hint(store)] == [60, 40]
    opened = Chain.open(store)
    assert opened.head == chain.head != Head()
    assert opened.files("b") == chain.files("b")
    assert len(opened.files("b")) == 70


def test_chunks_are_kept_as_runs() -> None:
    chunks = {("x", n) for n in range(1000)} | {("y", n) for n in (1, 2, 5)}
    assert to_runs(chunks) == {"x": ((0, 999),), "y": ((1, 2), (5, 5))}
    assert from_runs(to_runs(chunks)) == chunks
