"""The dictionary from the SYS tables: columns by segment, keys, log groups, partitions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.simulated_oracle import SimulatedOracle
from tests.unit.oracle import catalogue

from lowwater.codec import table as t
from lowwater.errors import SourceError, StartRefusedError
from lowwater_extractor.sources.oracle.config import OracleConfig
from lowwater_extractor.sources.oracle.dictionary import query as q
from lowwater_extractor.sources.oracle.dictionary.dictionary import ALL, PRIMARY_KEY, Dictionary, TableVersion
from lowwater_extractor.sources.oracle.dictionary.file import from_json, to_json
from lowwater_extractor.sources.oracle.dictionary.query import SqlDictionary
from lowwater_extractor.sources.oracle.scn import Scn


def read(database: SimulatedOracle | None = None, only: str = "", **more: Any) -> dict[str, TableVersion]:
    settings: dict[str, Any] = {"tables": ["BANK.*"], "host": "db", "service": "FREE", "user": "c##lowwater", **more}
    database = database or catalogue.with_catalogue(SimulatedOracle())
    found = SqlDictionary(database, OracleConfig(**settings), "bank", 3).read(Scn(5000), only)
    return {version.table: version for version in found}


def test_tables_with_their_objects() -> None:
    tables = read()
    # SCRATCH is a temporary table: the log has nothing of it that lasts
    assert set(tables) == {"ACCOUNTS", "ENTRIES", "KEYLESS", "TREE"}
    accounts = tables["ACCOUNTS"]
    assert (accounts.object_id, accounts.partition_ids, accounts.data_object_ids) == (100, (101, 102), (100, 111, 112))
    assert (accounts.container, accounts.from_scn, accounts.owner) == (3, 5000, "BANK")
    assert tables["TREE"].is_index_organized
    assert tables["KEYLESS"].is_compressed
    assert set(read(tables=["BANK.ENTRIES"])) == {"ENTRIES"}
    assert set(read(only="BANK.ACCOUNTS")) == {"ACCOUNTS"}


def test_columns_by_their_place_in_the_segment() -> None:
    accounts = read()["ACCOUNTS"]
    assert [column.name for column in accounts.visible] == [
        "ID", "NAME", "NATIVE", "ADDED", "QUIET", "LONG_TEXT", "SECRET", "PACKED",
    ]  # fmt: skip
    assert [column.number for column in accounts.stored] == list(range(1, 11))
    by_name = {column.name: column for column in accounts.columns}
    assert by_name["UPPER_NAME"].number == 0
    assert by_name["GONE"].is_hidden
    assert by_name["SYS_NC00006$"].is_guard
    assert (by_name["NAME"].charset, by_name["NATIVE"].charset) == ("AL32UTF8", "AL16UTF16")
    assert (by_name["ADDED"].default, by_name["ADDED"].guard) == (b"\xc1\x08", 0)
    assert by_name["LONG_TEXT"].is_lob
    assert by_name["SECRET"].unreadable == "an encrypted column"
    assert by_name["PACKED"].unreadable == "a compressed LOB"
    assert not by_name["ID"].nullable
    assert accounts.schema.columns[0].type == t.INT64


def test_keys_and_log_groups() -> None:
    tables = read()
    assert (tables["ACCOUNTS"].key, tables["ACCOUNTS"].supplemental) == (("ID",), (PRIMARY_KEY,))
    # a deferrable primary key, and a unique one with a null, do not tell rows apart
    assert tables["ENTRIES"].key == ("B", "C")
    assert set(tables["ENTRIES"].supplemental) == {ALL, "MY_GROUP"}
    assert tables["KEYLESS"].key == ()


def test_columns_that_the_operator_wants_as_text() -> None:
    accounts = read(as_text=["BANK.ACCOUNTS.ID"])["ACCOUNTS"]
    assert accounts.schema.columns[0].type == t.STRING


def test_it_is_asked_as_of_the_scn() -> None:
    for sql in (q.SQL_OBJECTS, q.SQL_TABLES, q.SQL_COLUMNS, q.SQL_DEFAULTS, q.SQL_CONSTRAINTS):
        assert sql.count("SYS.") == sql.count("AS OF SCN :scn")
    asked = {name for sql in vars(q).values() if isinstance(sql, str) for name in q.SYS_TABLES if f"SYS.{name} " in sql}
    assert asked == set(q.SYS_TABLES)


def test_what_it_reads_can_be_kept_as_a_file() -> None:
    tables = [version for version in read().values() if not version.is_index_organized and not version.is_compressed]
    dictionary = Dictionary(tables)
    assert list(from_json("bank", to_json(dictionary))) == list(dictionary)


def test_what_is_wrong_is_refused() -> None:
    with pytest.raises(SourceError, match="no users BANQUE"):
        read(tables=["BANQUE.*"])
    database = catalogue.with_catalogue(SimulatedOracle())
    database.answers[q.SQL_DEFAULTS] = [(100, 7, b"\xc1" * 2000, 9000, 0)]
    with pytest.raises(StartRefusedError, match=r"BANK\.ACCOUNTS\.ADDED"):
        read(database)
