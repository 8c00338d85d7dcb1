"""DDL by LogMiner: what is published, which tables are named stale, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.conformance.kit import Encoders
from tests.support.simulated_oracle import ACCOUNTS, SOURCE, SimulatedOracle, rowid
from tests.unit.oracle.test_contents import NOTES

from lowwater.errors import StartRefusedError
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, PRIMARY_KEY, TableVersion
from lowwater_extractor.sources.oracle.logminer.changes import ChangeMaker
from lowwater_extractor.sources.oracle.logminer.contents import Joiner
from lowwater_extractor.sources.oracle.logminer.tables import MinedTables
from lowwater_extractor.sources.oracle.logminer.transactions import Assembler
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.supplemental import SQL_SUPPLEMENTAL, SupplementalCheck
from lowwater_extractor.spill import SpillSpace

TABLE, OTHER = "BANK.ACCOUNTS", "BANK.NOTES"


class Mined:
    def __init__(self, directory: Path) -> None:
        self.database = SimulatedOracle()
        self.live: dict[str, TableVersion] = {TABLE: ACCOUNTS, OTHER: NOTES}
        tables = MinedTables(
            self.live.values(),
            lambda owner, table: owner == "BANK" and table != "OTHER",
            lambda _, name: [self.live[name]] if name in self.live else [],
            owners=["BANK"],
        )
        self.encoders = Encoders()
        maker = ChangeMaker(SOURCE, tables, self.encoders)
        self.assembler = Assembler(SOURCE, maker, tables, SpillSpace(directory), zone=ZoneInfo("UTC"))

    def ddl(self, sql: str, **more: Any) -> None:
        work = self.database.begin(1)
        self.database.put(work, 5, sql, **more)
        self.database.commit(work)

    def insert(self, number: int, **more: Any) -> None:
        work = self.database.begin(1)
        sql = f'insert into "BANK"."X"("ID","NAME","BALANCE") values (\'{number}\',NULL,NULL)'
        self.database.put(work, 1, sql, row_id=rowid(number), **more)
        self.database.commit(work)

    def read(self) -> tuple[list[tuple[str, str]], set[str]]:
        out: list[SourceTransaction] = []
        rows, self.database.rows = self.database.rows, []
        self.assembler.feed(Joiner().whole(rows), Scn(0), Scn(1 << 63), out)
        changes = [self.encoders.decode(frame, n) for each in out for n, frame in enumerate(each.changes, 1)]
        return [(change.op, change.table) for change in changes], set(self.assembler.stale.found)


@pytest.mark.parametrize(
    "sql",
    [
        "TRUNCATE/**/TABLE accounts",
        "-- nightly\ntruncate table bank.accounts reuse storage",
        'TRUNCATE TABLE "BANK"."ACCOUNTS" /* x */',
    ],
)
def test_truncate_with_a_comment_or_quotes_empties_the_table(tmp_path: Path, sql: str) -> None:
    mined = Mined(tmp_path)
    mined.ddl(sql)
    assert mined.read() == ([("t", TABLE)], set())


@pytest.mark.parametrize("owned", [True, False])
def test_dropped_table_is_empty_and_its_successor_is_captured(tmp_path: Path, owned: bool) -> None:
    mined = Mined(tmp_path)
    del mined.live[TABLE]
    mined.ddl('drop table accounts AS "BIN$x"', **({} if owned else {"owner": "UNKNOWN", "table": "OBJ# 72726"}))
    assert mined.read() == ([("t", TABLE)], set())
    new: dict[str, Any] = {"owner": "BANK", "table": "ACCOUNTS", "object": 90000}
    mined.live[TABLE] = replace(ACCOUNTS, object_id=90000, partition_ids=())
    mined.ddl("create table accounts (id number primary key)", **new)
    mined.insert(1, **new)
    assert mined.read() == ([("c", TABLE)], set())


@pytest.mark.parametrize(
    ("sql", "stale"),
    [
        ("alter table accounts truncate partition p", {TABLE}),
        ("alter table accounts /* x */ drop partition p", {TABLE}),
        ("alter table accounts exchange partition p with table notes", {TABLE, OTHER}),
        ("flashback table accounts to before drop", {TABLE}),
        ("create table accounts as select * from y", {TABLE}),
        ("alter table accounts reorganise somehow", {TABLE}),
        ("truncate table accounts cascade", {TABLE, OTHER}),
        ("alter table accounts move online", set()),
        ("alter table accounts split partition p at (1) into (partition a, partition b)", set()),
        ("alter table accounts add (x number default 5)", set()),
    ],
)
def test_statement_that_moves_rows_without_changes_names_its_tables_stale(
    tmp_path: Path, sql: str, stale: set[str]
) -> None:
    mined = Mined(tmp_path)
    mined.ddl(sql)
    assert mined.read()[1] == stale


def test_statement_without_an_owner_in_the_view_is_found_by_its_text(tmp_path: Path) -> None:
    mined = Mined(tmp_path)
    mined.ddl("truncate table accounts", owner=None, table=None, object=None)
    # whose table it is, is not certain: its rows are read again
    assert mined.read() == ([], {TABLE})
    del mined.live[TABLE]
    del mined.live[OTHER]
    mined.ddl("drop user bank cascade", owner=None, table=None, object=None)
    assert mined.read() == ([], {TABLE, OTHER})


def test_statement_that_is_rolled_back_changes_nothing(tmp_path: Path) -> None:
    mined = Mined(tmp_path)
    work = mined.database.begin(1)
    mined.database.put(work, 5, "alter table accounts drop partition p")
    mined.database.put(work, 36, "rollback")
    assert mined.read() == ([], set())


def test_rows_from_before_a_rename_keep_the_name_that_they_were_written_under(tmp_path: Path) -> None:
    """LogMiner shows the newest name; the object tells which table it was."""
    mined = Mined(tmp_path)
    mined.insert(1, owner="BANK", table="OTHER")
    assert mined.read() == ([("c", TABLE)], set())
    del mined.live[TABLE]
    mined.ddl("rename accounts to other", owner="BANK", table="OTHER")
    mined.insert(2, owner="BANK", table="OTHER")
    assert mined.read() == ([("t", TABLE)], set())


def test_table_that_takes_a_captured_name_is_stale(tmp_path: Path) -> None:
    mined = Mined(tmp_path)
    mined.live[TABLE] = replace(ACCOUNTS, object_id=500, partition_ids=())
    mined.ddl("alter table stage rename to accounts", owner="BANK", table="OTHER", object=500)
    mined.insert(2, owner="BANK", table="ACCOUNTS", object=500)
    assert mined.read() == ([("c", TABLE)], {TABLE})


class TestSupplementalLogging:
    def check(self, database: SimulatedOracle, table: TableVersion, now: TableVersion | None = None) -> None:
        database.answers.setdefault(SQL_SUPPLEMENTAL, [("YES", "NO", "NO")])
        SupplementalCheck("bank", database, lambda _: [now or table])(table)

    def test_table_without_it_is_refused_with_the_statement_that_adds_it(self) -> None:
        with pytest.raises(StartRefusedError, match=r"BANK\.ACCOUNTS: the log does not identify the row") as found:
            self.check(SimulatedOracle(), ACCOUNTS)
        assert 'ALTER TABLE "BANK"."ACCOUNTS" ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY)' in (found.value.hint or "")
        with pytest.raises(StartRefusedError):
            self.check(SimulatedOracle(), replace(ACCOUNTS, key=(), supplemental=(PRIMARY_KEY,)))

    @pytest.mark.parametrize("groups", [(ALL,), (PRIMARY_KEY,), ("MY_GROUP",)])
    def test_table_with_it_is_taken(self, groups: tuple[str, ...]) -> None:
        self.check(SimulatedOracle(), replace(ACCOUNTS, supplemental=groups))

    @pytest.mark.parametrize("answer", [("YES", "YES", "NO"), ("YES", "NO", "YES")])
    def test_database_that_logs_keys_of_all_tables_is_enough(self, answer: tuple[str, ...]) -> None:
        database = SimulatedOracle()
        database.answers[SQL_SUPPLEMENTAL] = [answer]
        self.check(database, ACCOUNTS)

    def test_statement_that_was_run_since_is_enough(self) -> None:
        self.check(SimulatedOracle(), ACCOUNTS, replace(ACCOUNTS, supplemental=(PRIMARY_KEY,)))

    def test_table_that_joins_later_is_checked_when_it_is_met(self, tmp_path: Path) -> None:
        database = SimulatedOracle()
        database.answers[SQL_SUPPLEMENTAL] = [("YES", "NO", "NO")]
        good = replace(ACCOUNTS, supplemental=(ALL,))
        bad = replace(ACCOUNTS, table="LATER", object_id=9, partition_ids=())
        check = SupplementalCheck("bank", database, lambda _: [bad])
        tables = MinedTables([good], lambda *_: True, lambda *_: [bad], check=check)
        assert tables.find("BANK", "ACCOUNTS", Scn(5)) is good
        with pytest.raises(StartRefusedError, match="LATER"):
            tables.find("BANK", "LATER", Scn(5))


def test_truncated_cluster_makes_its_tables_stale(tmp_path: Path) -> None:
    mined = Mined(tmp_path)
    mined.live[OTHER] = replace(NOTES, is_clustered=True)
    mined.ddl("truncate cluster c", owner="BANK", table="C", object=7)
    assert mined.read() == ([], {OTHER})
