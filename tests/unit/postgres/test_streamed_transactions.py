"""Transactions that come in blocks while they are running, and those that are too large for memory."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.kit import read
from tests.unit.postgres import pgoutput as pg
from tests.unit.postgres.pgoutput import TEXT, Fed, PgColumn, block

A, B = 16_500, 16_600
X, Y, SUB, DEEPER = 900, 901, 910, 911


def ids(fed: Fed) -> dict[str, list[Any]]:
    """Of each transaction that has come out: the first column of its rows, in order."""
    return {t.txid: [(c.after or c.before or ("truncated",))[0] for c in t.changes] for t in fed.read()}


def add(oid: int, *numbers: int, subxid: int) -> list[bytes]:
    return [pg.insert(oid, str(n), f"owner {n}", "1", subxid=subxid) for n in numbers]


@pytest.fixture(params=[1 << 20, 40, 0], ids=["in memory", "some on disk", "all on disk"])
def fed(request: pytest.FixtureRequest, tmp_path: Path) -> Fed:
    return Fed(tmp_path, request.param)


def test_blocks_of_two_transactions_are_taken_apart(fed: Fed) -> None:
    fed.feed(
        block(X, pg.relation(A, subxid=X), *add(A, 1, 2, subxid=X), first=True),
        block(Y, pg.relation(A, subxid=Y), *add(A, 10, subxid=Y), first=True),
        [pg.begin(7), pg.relation(A), pg.insert(A, "100", "small", "1"), pg.commit(2000)],
        block(X, *add(A, 3, subxid=X)),
        block(Y, *add(A, 11, 12, subxid=Y), pg.truncate(A, subxid=Y)),
    )
    assert not fed.assembler.is_inside
    assert ids(fed) == {"7": [100]}
    fed.feed(pg.stream_commit(Y, 3000), block(X, *add(A, 4, subxid=X)), pg.stream_commit(X, 4000))
    first, second = fed.take()
    assert [(t.txid, t.order.major, t.count) for t in (first, second)] == [(str(Y), 3000, 4), (str(X), 4000, 4)]
    contents = [read(t, fed.encoders) for t in (first, second)]
    rows = [[c.after[0] if c.after else c.op for c in t.changes] for t in contents]
    assert rows == [[10, 11, 12, "t"], [1, 2, 3, 4]]
    assert contents == [read(t, fed.encoders) for t in (first, second)], "it can be read again"


def test_a_subtransaction_that_was_rolled_back_leaves_nothing(fed: Fed) -> None:
    fed.feed(
        block(X, pg.relation(A, subxid=X), *add(A, 1, subxid=X), *add(A, 2, 3, subxid=SUB), first=True),
        block(X, *add(A, 4, subxid=DEEPER), *add(A, 5, subxid=X)),
        pg.stream_abort(X, DEEPER),
        pg.stream_abort(X, SUB),
        block(X, *add(A, 6, subxid=X), *add(A, 7, subxid=SUB + 5)),
        pg.stream_commit(X, 3000),
    )
    (found,) = fed.take()
    assert found.count == 4
    assert [c.after[0] for c in read(found, fed.encoders).changes if c.after] == [1, 5, 6, 7]


def test_a_transaction_that_was_rolled_back_leaves_nothing_and_no_files(fed: Fed) -> None:
    fed.feed(block(X, pg.relation(A, subxid=X), *add(A, *range(50), subxid=X), first=True))
    fed.feed(pg.stream_abort(X, X))
    gc.collect()
    assert not fed.take()
    assert not fed.spilled()
    assert not list(fed.encoders._encoders), "nothing was registered for it"
    # its id may be told again: a new one begins
    fed.feed(block(X, pg.relation(A, subxid=X), *add(A, 1, subxid=X), first=True), pg.stream_commit(X, 3000))
    assert ids(fed) == {str(X): [1]}


def test_all_of_it_rolled_back_in_subtransactions_is_no_transaction(fed: Fed) -> None:
    fed.feed(block(X, pg.relation(A, subxid=SUB), *add(A, 1, subxid=SUB), first=True), pg.stream_abort(X, SUB))
    fed.feed(pg.stream_commit(X, 3000))
    assert not fed.take()
    assert fed.assembler.end_lsn == 3000


def test_an_abort_of_what_never_came_is_nothing(fed: Fed) -> None:
    fed.feed(pg.stream_abort(X, X), pg.stream_abort(Y, SUB))
    assert not fed.take()


def test_a_new_shape_counts_for_others_once_it_has_committed(fed: Fed) -> None:
    wider = (*pg.ACCOUNTS, PgColumn("note", TEXT))
    fed.feed([pg.begin(6), pg.relation(A), pg.insert(A, "0", "a", "1"), pg.commit(1000)])
    fed.feed(
        block(X, pg.relation(A, subxid=X), *add(A, 1, subxid=X), first=True),
        block(X, pg.relation(A, columns=wider, subxid=X), pg.insert(A, "2", "b", "1", "new", subxid=X)),
        [pg.begin(7), pg.insert(A, "100", "narrow", "1"), pg.commit(2000)],
        pg.stream_commit(X, 3000),
        [pg.begin(8), pg.insert(A, "101", "wide", "1", "note"), pg.commit(4000)],
    )
    rows = [[c.after for c in t.changes] for t in fed.read()]
    assert rows == [
        [(0, "a", 1)],
        [(100, "narrow", 1)],
        [(1, "owner 1", 1), (2, "b", 1, "new")],
        [(101, "wide", 1, "note")],
    ]
    assert [table.version for table in fed.encoders._encoders] == [1, 2]


def test_a_shape_of_a_subtransaction_that_was_rolled_back_is_no_version(fed: Fed) -> None:
    wider = (*pg.ACCOUNTS, PgColumn("note", TEXT))
    added = [pg.relation(A, columns=wider, subxid=SUB), pg.insert(A, "2", "b", "1", "gone", subxid=SUB)]
    fed.feed(
        block(X, pg.relation(A, subxid=X), *add(A, 1, subxid=X), *added, first=True),
        pg.stream_abort(X, SUB),
        # the server has forgotten what it had told: it names the table again
        block(X, pg.relation(A, subxid=X), *add(A, 3, subxid=X)),
        pg.stream_commit(X, 3000),
        [pg.begin(8), pg.insert(A, "4", "after", "1"), pg.commit(4000)],
    )
    assert ids(fed) == {str(X): [1, 3], "8": [4]}
    assert [table.version for table in fed.encoders._encoders] == [1]


def test_a_shape_named_in_a_subtransaction_that_was_rolled_back_still_counts(fed: Fed) -> None:
    """The server names a table once for all of a transaction, in whichever subtransaction came first."""
    fed.feed(
        block(X, pg.relation(A, subxid=SUB), *add(A, 1, subxid=SUB), first=True),
        pg.stream_abort(X, SUB),
        block(X, *add(A, 2, subxid=X)),
        pg.stream_commit(X, 3000),
        [pg.begin(8), pg.insert(A, "3", "after", "1"), pg.commit(4000)],
    )
    assert ids(fed) == {str(X): [2], "8": [3]}


def test_a_type_that_is_as_young_as_the_transaction_is_asked_for_once_it_is_there(fed: Fed) -> None:
    young = (PgColumn("id", 23, True), PgColumn("d", 50_000))
    made = [pg.relation(B, "b", young, subxid=X), pg.insert(B, "1", "17", subxid=X)]
    fed.feed(block(X, pg.type_(50_000, "d", subxid=X), *made, first=True))
    fed.catalogue.types[50_000] = fed.catalogue.types[pg.INT8]
    fed.feed(pg.stream_commit(X, 3000))
    assert [c.after for t in fed.read() for c in t.changes] == [(1, 17)]


@pytest.mark.parametrize("bytes_max", [0, 1, 100, 1000, 1 << 20])
def test_a_whole_transaction_that_is_large_gives_the_same_frames_from_disk(tmp_path: Path, bytes_max: int) -> None:
    rng = random.Random(7)
    work = [pg.begin(7), pg.relation(A)]
    for n in range(200):
        owner = "x" * rng.randrange(300)
        work.append(pg.insert(A, str(n), owner, "1") if n % 3 else pg.update(A, (str(n), owner, None)))
    work.append(pg.commit(2000))
    kept, spilled = Fed(tmp_path / "a"), Fed(tmp_path / "b", bytes_max)
    (wanted,), (found,) = kept.feed(work).take(), spilled.feed(work).take()
    assert found.count == wanted.count == 200
    assert found.size_bytes == wanted.size_bytes
    assert list(found.changes) == list(wanted.changes) == list(found.changes)
    assert bool(spilled.spilled()) == (bytes_max < 1 << 20)
    assert bool(spilled.ticks) == (bytes_max < 1 << 20), "the server hears of us meanwhile"
    del found
    gc.collect()
    assert not spilled.spilled(), "what nobody can read any more is gone"


def test_memory_holds_no_more_of_a_transaction_than_is_allowed(tmp_path: Path) -> None:
    fed = Fed(tmp_path, 1000)
    fed.feed(pg.stream_start(X, first=True), pg.relation(A, subxid=X))
    for n in range(500):
        fed.feed(pg.insert(A, str(n), "x" * 100, "1", subxid=X))
        assert fed.assembler._open[X].rows._held <= 1000
    assert sum(path.stat().st_size for path in fed.spilled()) > 500 * 100 - 2000
