"""What a reader may ask for, what it is told, and what it is refused."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.support.lake_maker import LakeMaker, Made, MadeTransaction

from lowwater.codec.table import BYTES, DATE, INT32, INT64, STRING, TIMESTAMP, Column, TableSchema, Type, decimal
from lowwater.errors import LakeDamagedError, LakeError, StaleTableError
from lowwater.lake import Lake
from lowwater.lake.store.local import LocalDirectory


def schema(name: str, columns: dict[str, Type], key: tuple[str, ...] = ("id",), version: int = 1) -> TableSchema:
    source, namespace, table = name.split(".")
    return TableSchema(source, namespace, table, version, tuple(Column(n, t) for n, t in columns.items()), key)


def insert(schema_id: int, **row: Any) -> MadeTransaction:
    return MadeTransaction([Made(schema_id, "c", row)])


@pytest.fixture
def maker(tmp_path: Path) -> LakeMaker:
    return LakeMaker(LocalDirectory(tmp_path))


def opened(maker: LakeMaker) -> Lake:
    return Lake.open(maker.store.uri)


def test_names_may_be_short_while_they_are_clear(maker: LakeMaker) -> None:
    for name in ("pg.bank.accounts", "pg.shop.orders", "ora.SHOP.ORDERS", "my.shop.items", "ms.shop.items"):
        maker.land([insert(maker.version(schema(name, {"id": INT64})), id=1)])
    lake = opened(maker)
    assert lake.name("accounts") == lake.name("bank.Accounts") == "pg.bank.accounts"
    assert lake.name("orders") == "pg.shop.orders"
    assert lake.name("ORDERS") == "ora.SHOP.ORDERS"
    with pytest.raises(LakeError, match=r"matches several tables: ms\.shop\.items, my\.shop\.items"):
        lake.state("items")
    with pytest.raises(LakeError, match="no table 'acounts'") as refused:
        lake.changes("acounts")
    assert "accounts" in (refused.value.hint or "")
    assert next((info.name, info.rows, info.files) for info in lake.tables()) == ("ms.shop.items", 1, 1)


def test_a_view_stays_until_it_is_refreshed(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}))
    maker.land([insert(table, id=1)])
    lake = opened(maker)
    maker.land([insert(table, id=2)])
    assert lake.gsn == 1
    with pytest.raises(LakeError, match="gsn 2 has not landed: the lake is at gsn 1"):
        lake.at(2)
    assert lake.refresh() == 2
    assert len(lake.state("t").rows()) == 2
    assert len(lake.state("t", as_of=1).rows()) == 1


def test_a_time_is_the_last_gsn_with_nothing_later_at_or_below_it(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}))
    rng = random.Random(5)
    times: list[int] = []
    for _ in range(9):
        # commit times go back now and then
        landed = [1_000_000 * len(times) + rng.randrange(4_000_000) for _ in range(rng.randint(1, 4))]
        maker.land([MadeTransaction([Made(table, "c", {"id": 1})], us) for us in landed])
        times += landed
    lake = opened(maker)
    for us in sorted({0, *times, *(t - 1 for t in times), max(times) + 1}):
        wanted = next((n for n, t in enumerate(times) if t > us), len(times))
        assert lake.at(datetime.fromtimestamp(us / 1e6, UTC).replace(microsecond=us % 1_000_000)).gsn == wanted
    assert lake.at("1970-01-01T02:00:00+02:00").gsn == 0
    with pytest.raises(LakeError, match="has no time zone"):
        lake.at("2026-01-01T00:00:00")
    with pytest.raises(LakeError, match="neither a gsn nor a time"):
        lake.at("yesterday")


def test_what_was_folded_away_is_refused(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}))
    first = maker.land([insert(table, id=n) for n in range(4)])
    rows = maker.store.get(first.files[0].path)
    assert rows
    cdc = {"_op": "c", "_seq": 1, "_txid": "", "_thread": 1, "_commit_ts": 0, "_ts": 0}
    folded = maker.state_file(
        table, [{**cdc, "_gsn": n + 1, "_order": {"major": n + 1, "minor": 1}, "id": n} for n in range(4)], 4
    )
    maker.compact([folded], [first.files[0].path], history_from=4)
    maker.land([insert(table, id=9)])
    lake = opened(maker)
    assert sorted(row["id"] for row in lake.state("t").rows()) == [0, 1, 2, 3, 9]
    assert lake.changes("t", after_gsn=4).arrow()["id"].to_pylist() == [9]
    with pytest.raises(LakeError, match="begins at gsn 4"):
        lake.state("t", as_of=3)
    with pytest.raises(LakeError, match="begins at gsn 4"):
        lake.changes("t")


def test_a_join_at_one_version_never_sees_half_a_transaction(maker: LakeMaker) -> None:
    one = maker.version(schema("a.n.checking", {"id": INT64, "cents": INT64}))
    two = maker.version(schema("b.n.savings", {"id": INT64, "cents": INT64}))
    rng = random.Random(1)
    sums = {one: 500, two: 500}
    maker.land([MadeTransaction([Made(table, "c", {"id": 1, "cents": 500}) for table in sums])])
    for _ in range(6):
        moved = []
        for _ in range(rng.randint(1, 5)):
            cents = rng.randrange(100)
            sums[one], sums[two] = sums[one] - cents, sums[two] + cents
            moved.append(MadeTransaction([Made(t, "u", {"id": 1, "cents": value}) for t, value in sums.items()]))
        maker.land(moved, files_each=2)
    lake = opened(maker)
    con = duckdb.connect()
    for gsn in range(1, lake.gsn + 1):
        at = lake.at(gsn)
        at.state("checking").duckdb(con).create_view("one", replace=True)
        at.state("savings").duckdb(con).create_view("two", replace=True)
        assert con.sql("SELECT one.cents + two.cents FROM one JOIN two USING (id)").fetchall() == [(1000,)]
    con.close()


def test_a_table_without_a_key_has_a_state_only_while_rows_come(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}, key=()))
    maker.land([insert(table, id=1), insert(table, id=1), MadeTransaction([Made(table, "t")]), insert(table, id=2)])
    maker.land([MadeTransaction([Made(table, "d", {"id": 2})])])
    lake = opened(maker)
    assert [len(lake.state("t", as_of=gsn).rows()) for gsn in range(5)] == [0, 1, 2, 0, 1]
    with pytest.raises(LakeError, match="has no key") as refused:
        lake.state("t").arrow()
    assert "give the table a key" in (refused.value.hint or "")


def test_a_copy_read_while_rows_changed_is_overlaid_from_its_low(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64, "n": INT32}))
    maker.land([MadeTransaction([Made(table, "u", {"id": 1, "n": 10})])])
    low = f"{maker.gsn}.*"
    maker.land([MadeTransaction([Made(table, "u", {"id": 1, "n": 11})]), insert(table, id=3, n=30)])
    # read between the two: 1 and 3 as they were then, 2 was never changed
    maker.copy(table, "c1", [[{"id": 1, "n": 11}], [{"id": 2, "n": 20}, {"id": 3, "n": 30}]], low)
    maker.land([MadeTransaction([Made(table, "d", {"id": 3})])])
    readable = maker.copied(table, "c1", low)
    maker.land([MadeTransaction([Made(table, "u", {"id": 2, "n": 21})])])
    lake = opened(maker)

    def state(gsn: int) -> dict[int, int]:
        return {row["id"]: row["n"] for row in lake.state("t", gsn).rows()}

    assert state(readable - 1) == {1: 11}
    assert state(readable) == {1: 11, 2: 20}
    assert state(readable + 1) == {1: 11, 2: 21}


def test_a_new_copy_replaces_the_old_base(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64, "n": INT32}))
    for number, rows in enumerate(([{"id": 1, "n": 1}, {"id": 2, "n": 1}], [{"id": 2, "n": 2}]), 1):
        low = f"{maker.gsn}.*"
        maker.copy(table, f"c{number}", [rows], low)
        maker.copied(table, f"c{number}", low)
    lake = opened(maker)
    assert [{row["id"] for row in lake.state("t", gsn).rows()} for gsn in (1, 2)] == [{1, 2}, {2}]
    with pytest.raises(StaleTableError, match="not captured before gsn 1"):
        lake.state("t", 0)


def test_values_keep_their_types_and_odd_names_are_no_trouble(maker: LakeMaker) -> None:
    columns = {
        "id": INT64, "ID": STRING, 'a "b".c': DATE, "_gsn": INT32, "wide": decimal(50, 3), "raw": BYTES,
        "at": TIMESTAMP,
    }  # fmt: skip
    table = maker.version(schema("s.n.Odd 'one'", columns))
    row = {
        "id": 1, "ID": "x", 'a "b".c': datetime(2026, 1, 2, tzinfo=UTC).date(), "_gsn_": 5,
        "wide": Decimal("12345678901234567890123456789012345678901234.125"), "raw": b"\x00\xff",
        "at": datetime(2026, 1, 2, 3, 4, 5, 6),
    }  # fmt: skip
    maker.land([insert(table, **row), MadeTransaction([Made(table, "u", {**row, "ID": "y"}, row)])])
    lake = opened(maker)
    state = lake.state("Odd 'one'")
    assert state.rows() == [{**row, "ID": "y"}]
    assert state.schema.field("wide").type == pa.decimal256(50, 3)
    assert lake.changes("Odd 'one'", columns=["wide", "ID"]).arrow().to_pylist()[0] == {"wide": row["wide"], "ID": "x"}
    con = duckdb.connect()
    assert state.duckdb(con).fetchall()[0][4] == str(row["wide"])
    con.close()


@pytest.mark.parametrize("named", ["_before_", "_before"])
def test_a_column_with_a_name_of_ours_is_filled_where_the_log_left_it_out(maker: LakeMaker, named: str) -> None:
    """Files of before have the database's own name of it in `_unchanged`."""
    table = maker.version(schema("s.n.t", {"_gsn": INT64, "_before": STRING, "v": INT64}, key=("_gsn",)))
    maker.land([insert(table, _gsn_=38, _before_="long", v=1)])
    moved = Made(table, "u", {"_gsn_": 37, "_before_": None, "v": 1}, {"_gsn_": 38}, [named])
    maker.land([MadeTransaction([moved])])
    assert opened(maker).state("s.n.t").rows() == [{"_gsn_": 37, "_before_": "long", "v": 1}]


def test_a_key_of_another_type_needs_a_new_copy(maker: LakeMaker) -> None:
    old = maker.version(schema("s.n.t", {"id": INT64}))
    maker.land([insert(old, id=1)])
    new = maker.version(schema("s.n.t", {"id": STRING}, version=2))
    maker.land([insert(new, id="x")])
    lake = opened(maker)
    assert lake.state("t", 1).rows() == [{"id": 1}]
    with pytest.raises(LakeError, match="copy the table"):
        lake.state("t", 2)
    assert lake.changes("t", columns=["id", "id__v1"]).arrow().to_pylist() == [
        {"id": None, "id__v1": 1},
        {"id": "x", "id__v1": None},
    ]
    low = f"{maker.gsn}.*"
    maker.copy(new, "c1", [[{"id": "1"}, {"id": "x"}]], low)
    maker.copied(new, "c1", low)
    lake.refresh()
    assert sorted(row["id"] for row in lake.state("t").rows()) == ["1", "x"]
    assert [version.version for version in lake.versions("t")] == [1, 2]


def test_a_column_that_is_not_there_and_a_file_that_is_gone(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}))
    landed = maker.land([insert(table, id=1)])
    lake = opened(maker)
    with pytest.raises(LakeError, match="no column 'x'"):
        lake.state("t", columns=["x"])
    with pytest.raises(LakeError, match="no column 'x'"):
        lake.changes("t", columns=["x"])
    maker.store.delete(landed.files[0].path)
    with pytest.raises(LakeDamagedError, match="cannot be read"):
        lake.state("t").arrow()
    with pytest.raises(LakeDamagedError, match="not there"):
        lake.changes("t").arrow()


def test_a_place_without_a_lake_is_said(tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="there is no lake"):
        Lake.open(str(tmp_path))


def test_changes_stream_in_bounded_batches(maker: LakeMaker) -> None:
    table = maker.version(schema("s.n.t", {"id": INT64}))

    def many() -> Iterator[MadeTransaction]:
        for n in range(300):
            yield MadeTransaction([Made(table, "c", {"id": n * 1000 + k}) for k in range(7)])

    maker.land(many(), files_each=3, row_group=100)
    reader = opened(maker).changes("t", 10, 200, ["id"]).batches()
    ids = [one for batch in reader for one in batch["id"].to_pylist()]
    assert ids == [n * 1000 + k for n in range(10, 200) for k in range(7)]
