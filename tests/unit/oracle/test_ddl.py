"""DDL statements, in every spelling that the server takes: what they do to rows, and of which tables."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowwater_extractor.sources.oracle.ddl import Ddl, Effect, Name, parse

T = Name("BANK", "ACCOUNTS")


@pytest.mark.parametrize(
    "text",
    [
        "truncate table bank.accounts",
        "TRUNCATE/**/TABLE/* nightly */BANK . ACCOUNTS",
        'truncate table "BANK"."ACCOUNTS" reuse storage;',
        "-- why\ntruncate -- x\n table bank.accounts drop all storage\0",
        "truncate table bank.accounts preserve materialized view log",
        "/* alter table x drop partition p */ truncate table bank.accounts",
        "drop table bank.accounts purge",
        'drop table bank.accounts cascade constraints AS "BIN$abc==$0"',
        "DROP TABLE IF EXISTS bank.accounts",
    ],
)
def test_statement_that_empties_the_table_is_seen_in_every_spelling(text: str) -> None:
    found = parse(text)
    assert found is not None
    assert (found.effect, found.tables, found.cascades) == (Effect.EMPTIED, (T,), False)


def test_truncate_cascade_empties_tables_that_it_does_not_name() -> None:
    found = parse("truncate table bank.accounts drop storage cascade")
    assert found is not None
    assert found.cascades


def test_truncate_of_an_odd_name_keeps_it() -> None:
    assert parse('truncate table "a ""b" /*;*/')  # two quotes are no name of Oracle's: not understood
    found = parse('truncate table "Sch.ema"."t able"')
    assert found == Ddl(Effect.EMPTIED, "TRUNCATE TABLE", (Name("Sch.ema", "t able"),))
    found = parse("truncate table accounts")
    assert found is not None
    assert found.tables == (Name("", "ACCOUNTS"),)


@pytest.mark.parametrize(
    "clause",
    [
        "truncate partition p1",
        "TRUNCATE PARTITION FOR (DATE '2020-01-01') UPDATE INDEXES",
        "truncate subpartition s1 cascade",
        "drop partition p1, p2",
        "drop partitions p1, p2 update global indexes",
        "DROP /* old */ SUBPARTITION s1",
        "move partition p1 including rows where id > 5",
        "modify partition by range (id) (partition p values less than (5)) including rows where x = 1",
        "drop column note",
        'drop ("PARTITION")',
        "drop unused columns checkpoint 1000",
        "frobnicate everything",
    ],
)
def test_alter_table_that_may_take_rows_away_is_seen(clause: str) -> None:
    found = parse(f"alter table bank.accounts {clause}")
    assert found is not None
    assert (found.effect, found.tables) == (Effect.ROWS, (T,))


def test_exchange_partition_names_both_tables() -> None:
    found = parse('alter table bank.accounts exchange partition p1 with table "BANK"."STAGE" including indexes')
    assert found is not None
    assert (found.effect, found.tables, found.other) == (Effect.ROWS, (T,), Name("BANK", "STAGE"))


@pytest.mark.parametrize(
    "clause",
    [
        "add (note varchar2(10) default 'drop partition p1')",
        "add partition p9 values less than (maxvalue)",
        "drop constraint c cascade",
        "set unused (note)",
        "modify (note not null)",
        "rename column a to b",
        "rename partition p1 to p2",
        "move online tablespace users",
        "move partition p1 compress",
        "split partition p1 at (5) into (partition a, partition b)",
        "merge partitions a, b into partition c",
        "shrink space cascade",
        "add supplemental log data (primary key) columns",
        "drop supplemental log data (all) columns",
        "no inmemory",
        "nologging",
    ],
)
def test_alter_table_that_leaves_rows_alone_is_told_from_the_others(clause: str) -> None:
    found = parse(f"ALTER TABLE bank.accounts {clause}")
    assert found is not None
    assert (found.effect, found.tables) == (Effect.NONE, (T,))


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("rename accounts to old_accounts", Name("", "ACCOUNTS"), Name("", "OLD_ACCOUNTS")),
        ("alter table bank.accounts rename to old", T, Name("", "OLD")),
        ('alter table bank.accounts /**/ rename to "BIN$x"', T, Name("", "BIN$x")),
    ],
)
def test_rename_names_both(text: str, old: Name, new: Name) -> None:
    found = parse(text)
    assert found is not None
    assert (found.effect, found.tables, found.other) == (Effect.RENAMED, (old,), new)


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ("create table bank.accounts (id number)", Effect.NONE),
        ("create table bank.accounts as select * from x", Effect.ROWS),
        ("create table bank.accounts (id) nologging as with a as (select 1 from dual) select * from a", Effect.ROWS),
        ("create table bank.accounts (a number generated always as (1))", Effect.NONE),
        ("flashback table bank.accounts to before drop", Effect.ROWS),
        ("flashback table bank.accounts, bank.b to scn 5", Effect.ROWS),
    ],
)
def test_tables_that_are_made_or_come_back(text: str, effect: Effect) -> None:
    found = parse(text)
    assert found is not None
    assert (found.effect, found.tables[0]) == (effect, T)


def test_what_drops_tables_without_naming_them() -> None:
    assert parse("drop user bank cascade") == Ddl(Effect.NONE, "DROP USER", owner="BANK", cascades=True)
    found = parse("drop tablespace users including contents and datafiles")
    assert found == Ddl(Effect.NONE, "DROP TABLESPACE", cascades=True)
    assert parse("truncate cluster c") == Ddl(Effect.EMPTIED, "TRUNCATE CLUSTER", cascades=True)


@pytest.mark.parametrize(
    "text",
    [
        "create index i on bank.accounts (id)",
        "alter index i rebuild",
        "grant select on bank.accounts to x",
        "comment on table bank.accounts is 'truncate table bank.accounts'",
        "analyze table bank.accounts compute statistics",
        "create or replace view v as select * from bank.accounts",
        "drop index i",
        "alter session set x = 1",
    ],
)
def test_statement_that_touches_no_rows_is_passed_over(text: str) -> None:
    assert parse(text) is None


@pytest.mark.parametrize("text", ["", "alter table bank.accounts add (x varchar2(10) default 'a", "/* open", "(select"])
def test_statement_that_cannot_be_read_may_have_changed_rows(text: str) -> None:
    found = parse(text)
    assert found is not None
    assert found.effect is Effect.ROWS


@settings(deadline=None)
@given(st.text(alphabet="abqN'\"/*- \n.,()T;[]{}<>1@", max_size=40))
def test_any_text_is_read(text: str) -> None:
    parse(f"truncate table t {text}")
    parse(text)
