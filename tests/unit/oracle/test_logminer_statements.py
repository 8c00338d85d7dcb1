"""Statements that LogMiner writes in unusual forms, and what a change must name to be published."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.support.simulated_oracle import ACCOUNTS, SimulatedOracle, rowid
from tests.unit.oracle.test_contents import NOTES, Mined

from lowwater.errors import LogUnknownError
from lowwater_extractor.sources.oracle.logminer.sql_redo import OPAQUE, parse, parse_locator

NOTE: dict[str, Any] = {"owner": "BANK", "table": "NOTES", "object": 800}


def mined_one(directory: Path, operation: int, sql: str, **more: Any) -> list[dict[str, Any]]:
    database, mined = SimulatedOracle(), Mined(directory)
    work = database.begin(1)
    database.put(work, operation, sql, row_id=rowid(1), **more)
    database.commit(work)
    return mined.feed(database).changes()


@pytest.mark.parametrize(
    ("sql", "where"),
    [
        ('delete from "O"."T" a where a."C" = \'1\'', {"C": "1"}),
        ('delete from "O"."T" a where a."C" = \'1\' and a."D" IS NULL;', {"C": "1", "D": None}),
        ('delete from "O"."T" "a b" where "a b"."C" = \'1\'', {"C": "1"}),
        ('delete from "O"."T" where "C" = NULL and "D" = Unsupported Type;', {"C": None, "D": OPAQUE}),
        ('delete from "O"."T" where "C" = \'1\' and ROWID = \'AAARwWAAYAAAAAOAAA\'', {"C": "1"}),
        ('delete from "O"."T" a where a.ROWID = \'AAARwWAAYAAAAAOAAA\' and a."C" = \'1\'', {"C": "1"}),
        ('delete from "O"."T"', {}),
        ('delete from "O"."T" where_', {}),
    ],
)
def test_delete_with_an_alias_a_row_id_or_no_value_is_understood(sql: str, where: dict[str, Any]) -> None:
    assert parse(sql).where == where


def test_update_with_an_alias_is_understood() -> None:
    found = parse('update "O"."T" a set a."C" = \'1\', a."D" = Unsupported where a."ID" = \'7\'')
    assert (found.values, found.where) == ({"C": "1", "D": OPAQUE}, {"ID": "7"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("/* JSON */ HEXTORAW('ff4a')", b"\xff\x4a"),
        ("/* JSON */ EMPTY_BLOB()", b""),
        ("/* one */ /* two */ 'x'", "x"),
        ("XMLTYPE('<a>(''b'')</a>')", OPAQUE),
        ("XMLType.createXML", None),
        ('"MDSYS"."SDO_GEOMETRY"(2001, NULL, "MDSYS"."SDO_POINT_TYPE"(\'1)\', 2, NULL))', OPAQUE),
        ("BFILENAME('DIR','file')", OPAQUE),
        ("TO_CLOB('x')", "x"),
        ("UNISTR('\\0412') || 'b' || N'c'", "\u0412bc"),
        ("UNSUPPORTED TYPE", OPAQUE),
    ],
)
def test_unusual_literals_are_read_or_refused(text: str, value: object) -> None:
    insert, update = f'insert into "O"."T"("A","B") values ({text},\'1\')', f'update "O"."T" set "A" = {text}'
    if value is None:
        for sql in (insert, update):
            with pytest.raises(LogUnknownError, match="expected"):
                parse(sql)
        return
    assert parse(insert).values == {"A": value, "B": "1"}
    assert parse(update).values == {"A": value}
    assert parse(f'delete from "O"."T" where "A" = {text} and "B" = \'1\'').where == {"A": value, "B": "1"}


def test_locator_with_an_alias_is_understood() -> None:
    found = parse_locator('select a."NOTE" into loc_c from "BANK"."NOTES" a where a."ID" = \'1\' for update')
    assert (found.column, found.where) == ("NOTE", {"ID": "1"})


def test_json_and_unsupported_columns_are_unchanged(tmp_path: Path) -> None:
    columns = '("ID","NOTE","PHOTO","DOC")'
    values = "'1',Unsupported Type,EMPTY_BLOB(),/* JSON */ HEXTORAW('ff4a')"
    (change,) = mined_one(tmp_path, 1, f'insert into "BANK"."NOTES"{columns} values ({values})', **NOTE)
    assert sorted(change["unchanged"]) == ["DOC", "NOTE"]
    assert change["after"] == {"ID": 1, "NOTE": None, "PHOTO": b"", "DOC": None}
    sql = 'update "BANK"."NOTES" set "NOTE" = Unsupported Type, "DOC" = /* JSON */ EMPTY_BLOB() where "ID" = \'1\''
    (change,) = mined_one(tmp_path, 3, sql, **NOTE)
    assert sorted(change["unchanged"]) == ["DOC", "NOTE", "PHOTO"]


def test_unsupported_value_of_an_ordinary_column_stops_the_source(tmp_path: Path) -> None:
    sql = 'update "BANK"."ACCOUNTS" set "NAME" = Unsupported Type where "ID" = \'1\''
    with pytest.raises(LogUnknownError, match="column NAME"):
        mined_one(tmp_path, 3, sql)


@pytest.mark.parametrize(
    ("operation", "sql", "what"),
    [
        (3, 'update "BANK"."ACCOUNTS" set "NAME" = \'x\' where "NAME" = \'y\'', "an update"),
        (3, 'update "BANK"."ACCOUNTS" set "NAME" = \'x\'', "an update"),
        (3, 'update "BANK"."ACCOUNTS" set "ID" = NULL where "ID" = \'1\'', "an update"),
        (2, 'delete from "BANK"."ACCOUNTS" where "NAME" = \'y\'', "a delete"),
        (2, 'delete from "BANK"."ACCOUNTS" a', "a delete"),
        (1, 'insert into "BANK"."ACCOUNTS"("NAME") values (\'y\')', "an insert"),
    ],
)
def test_change_without_the_key_is_refused_with_the_statement_that_adds_it(
    tmp_path: Path, operation: int, sql: str, what: str
) -> None:
    with pytest.raises(LogUnknownError, match=rf"{what} of BANK\.ACCOUNTS is in the log without the key") as found:
        mined_one(tmp_path, operation, sql)
    assert 'ALTER TABLE "BANK"."ACCOUNTS" ADD SUPPLEMENTAL LOG DATA (PRIMARY KEY) COLUMNS' in (found.value.hint or "")


def test_update_of_a_table_without_a_key_that_lacks_columns_is_refused(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path, versions=[replace(ACCOUNTS, key=()), NOTES])
    work = database.begin(1)
    database.put(work, 3, 'update "BANK"."ACCOUNTS" set "NAME" = \'x\' where "ID" = \'1\'', row_id=rowid(1))
    database.commit(work)
    with pytest.raises(LogUnknownError, match="without all columns"):
        mined.feed(database).changes()
