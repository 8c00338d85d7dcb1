"""V$LOGMNR_CONTENTS, row by row: what each operation means, what is cancelled, what stops the source."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import fastavro
import pytest
from tests.conformance.kit import Encoders
from tests.support.simulated_oracle import ACCOUNTS, NO_ROW, SOURCE, Rows, SimulatedOracle, rowid

from lowwater.codec.varint import long
from lowwater.errors import LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError
from lowwater.records.wire import schema_id_of
from lowwater_extractor.api import SourceTransaction
from lowwater_extractor.sources.oracle.dictionary.dictionary import TableVersion
from lowwater_extractor.sources.oracle.logminer.changes import ChangeMaker
from lowwater_extractor.sources.oracle.logminer.contents import OPERATIONS, Action, Joiner, Row, place_of, query
from lowwater_extractor.sources.oracle.logminer.tables import MinedTables
from lowwater_extractor.sources.oracle.logminer.transactions import Assembler
from lowwater_extractor.sources.oracle.rows.lob_fetch import LobFetch
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.types import OracleColumn, OracleType
from lowwater_extractor.spill import SpillSpace

NOTES = TableVersion(
    SOURCE,
    "BANK",
    "NOTES",
    800,
    (
        OracleColumn("ID", 1, OracleType.NUMBER, 22, 10, 0, nullable=False),
        OracleColumn("NOTE", 2, OracleType.CLOB, charset_form=1, charset="AL32UTF8"),
        OracleColumn("PHOTO", 3, OracleType.BLOB),
        OracleColumn("DOC", 4, OracleType.OPAQUE),
        OracleColumn("SYS_NC00005$", 5, OracleType.RAW, is_hidden=True),
    ),
    key=("ID",),
)


class Mined:
    """Rows straight into the assembler."""

    def __init__(
        self,
        directory: Path,
        spill_bytes_max: int = 1 << 20,
        lobs: LobFetch | None = None,
        versions: Sequence[TableVersion] = (ACCOUNTS, NOTES),
    ) -> None:
        self.encoders = Encoders()
        self.read_again: list[tuple[int, str]] = []
        tables = MinedTables(versions, lambda owner, table: owner == "BANK", self.read_one)
        maker = ChangeMaker(SOURCE, tables, self.encoders, lobs)
        self.assembler = Assembler(
            SOURCE, maker, tables, SpillSpace(directory), zone=ZoneInfo("UTC"), spill_bytes_max=spill_bytes_max
        )
        self.out: list[SourceTransaction] = []

    def read_one(self, scn: int, name: str) -> list[TableVersion]:
        self.read_again.append((scn, name))
        new = replace(ACCOUNTS, table="NEW", object_id=900, partition_ids=())
        return {"BANK.ACCOUNTS": [ACCOUNTS], "BANK.NOTES": [NOTES], "BANK.NEW": [new]}.get(name, [])

    def feed(self, database: SimulatedOracle) -> Mined:
        rows, database.rows = database.rows, []
        self.assembler.feed(Joiner().whole(rows), Scn(0), Scn(1 << 63), self.out)
        return self

    def changes(self) -> list[dict[str, Any]]:
        """Whole records, with `unchanged`."""
        found = []
        for transaction in self.out:
            for number, frame in enumerate(transaction.changes, 1):
                self.encoders.decode(frame, number)
                found.append(self.record(frame, number))
        return found

    def record(self, frame: tuple[bytes, bytes], number: int) -> dict[str, Any]:
        _, schema = self.encoders._schemas[schema_id_of(frame[0])]
        record: Any = fastavro.schemaless_reader(io.BytesIO(long(number) + frame[1]), schema, None)
        return dict(record)


def test_every_operation_is_decided_with_a_reason() -> None:
    assert all(reason for _, reason in OPERATIONS.values())
    assert {number for number, (action, _) in OPERATIONS.items() if action is Action.CHANGE} == {1, 2, 3}
    sql, binds = query(["BANK", "AUDIT"], container=True)
    assert binds == {"owner0": "BANK", "owner1": "AUDIT"}
    assert "OPERATION_CODE IN (6, 7, 34, 36)" in sql
    assert "OPERATION_CODE NOT IN (0, 25)" in sql
    assert "SRC_CON_NAME = :container" in sql
    assert "ORDER BY" not in sql


def test_places_compare_as_the_log_does() -> None:
    database = SimulatedOracle()
    work = database.begin(1)
    row = database.rows[0]
    ids = [
        " 0x00000f.00000244.0010 ",
        " 0x00000f.00000244.0168 ",
        " 0x00000f.00000245.0010 ",
        " 0x000010.00000002.0010 ",
    ]
    places = [place_of(row._replace(rs_id=rs_id)) for rs_id in ids]
    assert places == sorted(places)
    assert len(set(places)) == 4
    assert 1 <= places[0] < 1 << 64
    assert work.start == row.scn
    with pytest.raises(LogUnknownError, match="RS_ID"):
        place_of(row._replace(rs_id="7.8.9"))


def test_commit_and_rollback(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    kept, dropped, empty = database.begin(1), database.begin(1), database.begin(1)
    database.insert(kept, 1, "a", "1.00")
    database.insert(dropped, 2, "b", "1.00")
    database.rollback(dropped)
    database.commit(empty)
    database.commit(kept)
    mined.feed(database)
    assert [(t.txid, t.count, t.thread) for t in mined.out] == [(database.history[0][1], 1, 1)]
    assert mined.out[0].order.major == database.history[0][2]
    assert mined.out[0].commit_ts_us % 1_000_000 == 0
    assert not mined.assembler.open


@pytest.mark.parametrize("spill", [1 << 20, 0])
def test_a_rollback_to_a_savepoint_cancels_the_newest_of_that_row(tmp_path: Path, spill: int) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path, spill)
    work = database.begin(1)
    database.insert(work, 1, "a", "1.00")
    database.update(work, 1, "a", "1.00", "2.00")
    mined.feed(database)
    database.update(work, 1, "a", "2.00", "3.00")
    database.insert(work, 2, "b", "1.00")
    database.delete(work, 1, "a", "3.00")
    database.undo(work, 3)
    database.update(work, 1, "a", "2.00", "4.00")
    database.commit(work)
    mined.feed(database)
    assert [(c["op"], c["after"]["BALANCE"]) for c in mined.changes()] == [
        ("c", pytest.approx(1)),
        ("u", pytest.approx(2)),
        ("u", pytest.approx(4)),
    ]


def test_many_rows_of_one_insert_may_be_taken_back_in_any_order(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    for number in (1, 2, 3):
        database.insert(work, number, "a", "1.00")
    for number in (1, 3):
        database.put(work, 2, 'delete from "BANK"."ACCOUNTS"', rollback=1, row_id=rowid(number))
    database.commit(work)
    mined.feed(database)
    assert [change["after"]["ID"] for change in mined.changes()] == [2]


def test_rows_without_a_row_id_are_cancelled_by_their_key(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    for number in (1, 2):
        values = f"'{number}','a','1'"
        sql = f'insert into "BANK"."ACCOUNTS"("ID","NAME","BALANCE") values ({values})'
        database.put(work, 1, sql, row_id=NO_ROW)
    database.put(work, 2, 'delete from "BANK"."ACCOUNTS" where "ID" = \'1\'', rollback=1, row_id=NO_ROW)
    work.changes.append(("c", None, (2, "a", "1")))
    database.commit(work)
    mined.feed(database)
    assert [change["after"]["ID"] for change in mined.changes()] == [2]


def test_undo_of_what_is_not_there_stops(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.put(work, 2, 'delete from "BANK"."ACCOUNTS"', rollback=1, row_id=rowid(1))
    with pytest.raises(LogCorruptError, match="undoes a change") as caught:
        mined.feed(database)
    assert (caught.value.source, caught.value.thread) == (SOURCE, 1)
    assert "SCN" in (caught.value.position or "")


def test_what_an_update_does_not_name_is_unchanged(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    sql = 'update "BANK"."ACCOUNTS" set "BALANCE" = \'5\' where "ID" = \'1\' and "BALANCE" = \'4\''
    database.put(work, 3, sql, row_id=rowid(1))
    work.changes.append(("u", None, None))
    database.commit(work)
    (change,) = mined.feed(database).changes()
    assert change["unchanged"] == ["NAME"]
    assert (change["before"]["ID"], change["after"]["ID"], change["after"]["NAME"]) == (1, 1, None)


def lob(column: str, where: str = "\"ID\" = '1'") -> str:
    return f'DECLARE loc_c CLOB; BEGIN select "{column}" into loc_c from "BANK"."NOTES" where {where} for update;'


NOTE_ROW: dict[str, Any] = {"owner": "BANK", "table": "NOTES", "object": 800}


def test_a_lob_in_pieces_is_unchanged_in_the_change_before_it(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    columns, values = '"ID","NOTE","PHOTO","SYS_NC00005$"', "'1',EMPTY_CLOB(),HEXTORAW('ff'),NULL"
    sql = f'insert into "BANK"."NOTES"({columns}) values ({values})'
    database.put(work, 1, sql, row_id=rowid(1), **NOTE_ROW)
    database.put(work, 9, lob("NOTE"), row_id=NO_ROW, **NOTE_ROW)
    database.put(work, 10, " buf_c := 'text'; dbms_lob.write(loc_c, 4, 1, buf_c);", row_id=NO_ROW, **NOTE_ROW)
    database.put(work, 11, "dbms_lob.trim(loc_c, 2);", row_id=NO_ROW, **NOTE_ROW)
    # another row's: an update of its own
    database.put(work, 9, lob("NOTE", "\"ID\" = '2'"), row_id=NO_ROW, **NOTE_ROW)
    work.changes.append(("c", None, None))
    database.commit(work)
    first, second = mined.feed(database).changes()
    assert (first["op"], first["after"]["NOTE"], first["after"]["PHOTO"]) == ("c", None, b"\xff")
    assert first["unchanged"] == ["DOC", "NOTE"]
    assert (second["op"], second["after"]["ID"], second["unchanged"]) == ("u", 2, ["NOTE", "PHOTO", "DOC"])


class Lobs(SimulatedOracle):
    """Answers a question for LOBs, and remembers it."""

    def __init__(self, rows: Rows) -> None:
        super().__init__()
        self.lobs = rows
        self.questions: list[tuple[str, dict[str, Any]]] = []

    def ask(self, sql: str, **binds: Any) -> Rows:
        self.questions.append((sql, binds))
        return self.lobs


@pytest.mark.parametrize(("answer", "note", "unchanged"), [([("long",)], "long", ["DOC"]), ([], None, ["DOC", "NOTE"])])
def test_a_lob_in_pieces_is_fetched_as_of_the_commit(
    tmp_path: Path, answer: Rows, note: str | None, unchanged: list[str]
) -> None:
    lobs = Lobs(answer)
    database, mined = SimulatedOracle(), Mined(tmp_path, lobs=LobFetch(lobs))
    work = database.begin(1)
    sql = 'insert into "BANK"."NOTES"("ID","NOTE","PHOTO") values (\'1\',EMPTY_CLOB(),NULL)'
    database.put(work, 1, sql, row_id=rowid(1), **NOTE_ROW)
    database.put(work, 9, lob("NOTE"), row_id=NO_ROW, **NOTE_ROW)
    database.commit(work)
    (change,) = mined.feed(database).changes()
    assert (change["after"]["NOTE"], change["unchanged"]) == (note, unchanged)
    commit = mined.out[0].order.major
    asked = 'SELECT "NOTE" FROM "BANK"."NOTES" AS OF SCN :scn WHERE "ID" = :k0'
    assert lobs.questions[0] == (asked, {"scn": commit, "k0": 1})


def test_a_small_lob_comes_with_its_value(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    sql = 'update "BANK"."NOTES" set "NOTE" = \'small\', "PHOTO" = EMPTY_BLOB() where "ID" = \'1\''
    database.put(work, 3, sql, row_id=rowid(1), **NOTE_ROW)
    work.changes.append(("u", None, None))
    database.commit(work)
    (change,) = mined.feed(database).changes()
    assert (change["after"]["NOTE"], change["after"]["PHOTO"], change["unchanged"]) == ("small", b"", ["DOC"])


def test_a_document_in_pieces_is_unchanged(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    sql = 'update "BANK"."NOTES" a set a."DOC" = XMLType(:1) where a."ID" = \'1\''
    database.put(work, 68, sql, row_id=rowid(1), status=2, **NOTE_ROW)
    database.put(work, 70, "<a/>", status=2, **NOTE_ROW)
    database.put(work, 71, "", status=2, **NOTE_ROW)
    work.changes.append(("u", None, None))
    database.commit(work)
    (change,) = mined.feed(database).changes()
    assert (change["op"], change["after"]["ID"], change["unchanged"]) == ("u", 1, ["NOTE", "PHOTO", "DOC"])


def test_a_piece_without_its_row_stops(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.put(work, 10, "buf_c := 'x'", **NOTE_ROW)
    with pytest.raises(LogUnknownError, match="piece"):
        mined.feed(database)


def test_truncate_is_a_change_and_other_ddl_makes_the_dictionary_be_read_again(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.put(work, 5, "truncate table bank.accounts")
    work.changes.append(("t", None, None))
    database.commit(work)
    ddl = database.begin(1)
    database.put(ddl, 5, "alter table bank.accounts add (x number)")
    ddl_scn = database.scn
    database.commit(ddl)
    after = database.begin(1)
    database.insert(after, 1, "a", "1.00")
    database.commit(after)
    mined.feed(database)
    assert [change["op"] for change in mined.changes()] == ["t", "c"]
    # as of each commit
    assert [name for _, name in mined.read_again] == ["BANK.ACCOUNTS"] * 2
    assert mined.read_again[1][0] > ddl_scn


def test_a_table_that_is_created_is_captured_from_its_first_row_on(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    new: dict[str, Any] = {"owner": "BANK", "table": "NEW", "object": 900}
    ddl = database.begin(1)
    database.put(ddl, 5, "create table bank.new (…)", **new)
    database.commit(ddl)
    work = database.begin(1)
    database.put(work, 1, 'insert into "BANK"."NEW"("ID","NAME","BALANCE") values (\'1\',NULL,NULL)', **new)
    database.commit(work)
    assert [change["after"]["ID"] for change in mined.feed(database).changes()] == [1]
    assert [name for _, name in mined.read_again] == ["BANK.NEW"]


@pytest.mark.parametrize(
    ("operation", "more", "error", "what"),
    [
        (34, {"owner": None, "table": None, "object": None}, LogGapError, "missing redo"),
        (255, {"info": "Unsupported data type"}, LogUnknownError, "Unsupported data type"),
        (255, {"owner": None, "table": None}, LogUnknownError, "cannot decode"),
        (1, {"status": 2, "info": "Dictionary Mismatch"}, LogUnknownError, "Dictionary Mismatch"),
        (99, {}, LogUnknownError, "operation 99"),
        (1, {"owner": "UNKNOWN", "table": "OBJ# 72726"}, LogUnknownError, "object 72726 is captured"),
        (1, {"owner": "UNKNOWN", "table": "OBJ# 72727", "object": 72727}, LogUnknownError, "object 72727 is captured"),
        (1, {"parent_sequence": 7}, LogUnknownError, "parallel"),
    ],
)
def test_what_cannot_be_known_stops(
    tmp_path: Path, operation: int, more: dict[str, Any], error: type[Exception], what: str
) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.put(work, operation, "x", **more)
    with pytest.raises(error, match=what):
        mined.feed(database)


@pytest.mark.parametrize(
    ("operation", "more"),
    [
        (0, {}),
        (25, {}),
        (1, {"owner": "AUDIT", "table": "X", "object": 5}),
        (99, {"owner": "AUDIT", "table": "X", "object": 5}),
        (255, {"owner": None, "table": None, "object": 5}),
        (1, {"owner": "UNKNOWN", "table": "OBJ# 5", "object": 5}),
    ],
)
def test_what_cannot_matter_is_passed_over(tmp_path: Path, operation: int, more: dict[str, Any]) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.put(work, operation, "x", **more)
    database.commit(work)
    assert mined.feed(database).out == []


def test_a_row_without_its_begin_stops_behind_the_start_and_not_before(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    database.rows.clear()
    database.insert(work, 1, "a", "1.00")
    mined.assembler.read = database.scn
    mined.feed(database)
    database.insert(work, 2, "a", "1.00")
    with pytest.raises(LogGapError, match="begin was not read"):
        mined.feed(database)


def test_rows_outside_of_the_window_and_commits_that_go_back_stop(tmp_path: Path) -> None:
    database, mined = SimulatedOracle(), Mined(tmp_path)
    work = database.begin(1)
    with pytest.raises(MarkBrokenError, match="window"):
        mined.assembler.feed(database.rows, Scn(work.start), Scn(work.start + 10), [])
    for _ in range(2):
        work = database.begin(1)
        database.insert(work, 1, "a", "1.00")
        database.commit(work)
    commits = [row for row in database.rows if row.operation == 7]
    database.rows = [row for row in database.rows if row.operation != 7] + commits[::-1]
    with pytest.raises(MarkBrokenError, match="after one"):
        mined.feed(database)


def test_pieces_of_a_statement_belong_together() -> None:
    database = SimulatedOracle()
    work = database.begin(1)
    database.rows.clear()
    database.put(work, 1, "x" * 10_000, row_id=rowid(1))
    first, *rest = database.rows
    assert [row.csf for row in database.rows] == [1, 1, 0]
    joiner = Joiner()
    # a batch may end anywhere
    assert list(joiner.whole([first])) == []
    assert joiner.is_inside
    (whole,) = joiner.whole(rest)
    assert whole.sql == "x" * 10_000
    other: Row = rest[0]._replace(rs_id=" 0x000001.00000099.0010 ")
    with pytest.raises(LogCorruptError, match="another statement"):
        list(Joiner().whole([first, other]))
