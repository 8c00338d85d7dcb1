"""Each message of pgoutput, and what transactions come of them: whole ones."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
import pytest
from tests.conformance.kit import SOURCE, PastChange, PastTransaction
from tests.unit.postgres import pgoutput as pg
from tests.unit.postgres.pgoutput import INT4, INT8, TEXT, TS_US, UNCHANGED, Fed, PgColumn

from lowwater.codec.avro import change_schema
from lowwater.codec.varint import long
from lowwater.errors import CodecError, LogCorruptError, LogUnknownError
from lowwater_extractor.api import Frame
from lowwater_extractor.sources.postgres.wire import messages

A, B = 16_500, 16_600
ENTRIES = (PgColumn("id", INT4, True), PgColumn("cents", INT8))


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return Fed(tmp_path)


def whole(*changes: bytes) -> list[bytes]:
    return [pg.begin(7), *changes, pg.commit(2000)]


def change_of(fed: Fed, frame: Frame) -> dict[str, Any]:
    """With `unchanged` and the time, of a table that has one version."""
    (table,) = (encoder.table for encoder in fed.encoders._encoders.values())
    schema = fastavro.parse_schema(json.loads(json.dumps(change_schema(table))))
    found: Any = fastavro.schemaless_reader(io.BytesIO(long(1) + frame[1]), schema, None)
    return dict(found)


# -- one message -----------------------------------------------------------------------------------------


def test_messages_read_as_they_were_written() -> None:
    body = messages.begin(pg.begin(7, 0x1_0000_0010), 26)
    assert body == (0x1_0000_0010, TS_US, 7)
    assert messages.commit(pg.commit(2000), 26) == (1992, 2000, TS_US)
    assert messages.stream_start(pg.stream_start(9, first=True), 26) == (9, True)
    assert messages.stream_start(pg.stream_start(9, first=False), 26) == (9, False)
    assert messages.stream_commit(pg.stream_commit(9, 3000), 26) == (9, 2992, 3000, TS_US)
    assert messages.stream_abort(pg.stream_abort(9, 11), 26) == (9, 11)
    assert messages.truncated(pg.truncate(A, B, options=3), 26) == [A.to_bytes(4), B.to_bytes(4)]
    assert messages.keepalive(b"k" + struct.pack(">QqB", 0x16B374D848, 1, 1)) == (0x16B374D848, True)
    assert messages.keepalive(b"k" + struct.pack(">QqB", 5, 1, 0)) == (5, False)


def test_a_relation_has_its_columns_with_types_modifiers_and_keys() -> None:
    columns = (PgColumn("Größe", 1700, True, 655_366), PgColumn("b", TEXT))
    found = messages.relation(pg.relation(A, "tä", columns, "i"), 26)
    assert (found.oid, found.namespace, found.name, found.identity) == (A, "public", "tä", "i")
    assert found.columns == (("Größe", 1700, 655_366, True), ("b", TEXT, -1, False))
    assert messages.relation(pg.relation(A, namespace=""), 26).namespace == "pg_catalog"


def test_a_relation_of_no_columns_has_none(fed: Fed) -> None:
    fed.feed(whole(pg.relation(A, "empty", ()), pg.insert(A)))
    assert fed.read()[0].changes == (PastChange("c", "public.empty", None, ()),)


# -- transactions that come whole ------------------------------------------------------------------------


def test_a_transaction_comes_out_at_its_commit_and_not_before(fed: Fed) -> None:
    fed.feed(pg.begin(7), pg.relation(A), pg.insert(A, "1", "Zoë", "500"))
    assert fed.assembler.is_inside
    assert not fed.take()
    fed.feed(pg.commit(2000))
    (found,) = fed.take()
    assert (found.thread, found.txid, found.order.major, found.commit_ts_us, found.count) == (1, "7", 2000, TS_US, 1)
    assert fed.assembler.end_lsn == 2000
    assert not fed.assembler.is_inside


def test_inserts_updates_deletes_and_truncates_are_told_in_their_order(fed: Fed) -> None:
    fed.feed(
        whole(
            pg.relation(A), pg.relation(B, "entries", ENTRIES),
            pg.insert(A, "1", None, "-500"),
            pg.update(A, ("1", "x", "7")),
            pg.update(A, ("2", "x", "7"), key=("1", None, None)),
            pg.update(A, ("2", "y", "7"), old=("2", "x", "7")),
            pg.delete(A, key=("2", None, None)),
            pg.delete(A, old=("3", "z", "1")),
            pg.truncate(A, B, options=1),
        )
    )  # fmt: skip
    accounts, entries = "public.accounts", "public.entries"
    assert fed.read() == [
        PastTransaction(
            1, "7",
            (
                PastChange("c", accounts, None, (1, None, -500)),
                PastChange("u", accounts, None, (1, "x", 7)),
                PastChange("u", accounts, (1, None, None), (2, "x", 7)),
                PastChange("u", accounts, (2, "x", 7), (2, "y", 7)),
                PastChange("d", accounts, (2, None, None), None),
                PastChange("d", accounts, (3, "z", 1), None),
                PastChange("t", accounts, None, None),
                PastChange("t", entries, None, None),
            ),
        )
    ]  # fmt: skip


def test_types_origins_and_messages_are_no_changes(fed: Fed) -> None:
    fed.feed(pg.message("lowwater", b"heartbeat"))
    fed.feed(pg.begin(7), pg.origin("elsewhere"), pg.type_(99_999, "mood"), pg.message("app", b"\0x"), pg.commit(2000))
    assert not fed.take(), "a transaction without changes is none"
    assert fed.assembler.end_lsn == 2000


def test_a_value_that_the_log_left_out_is_named_as_unchanged(fed: Fed) -> None:
    fed.feed(whole(pg.relation(A), pg.update(A, ("1", UNCHANGED, "7"))))
    (frame,) = fed.take()[0].changes
    found = change_of(fed, frame)
    assert (found["unchanged"], found["after"]) == (["owner"], {"id": 1, "owner": None, "cents": 7})


def test_a_value_that_the_log_left_out_is_taken_from_the_old_row_where_that_is_whole(fed: Fed) -> None:
    fed.catalogue.keys[A] = ("id",)
    columns = tuple(column._replace(is_key=True) for column in pg.ACCOUNTS)
    old = ("1", "long", "6")
    fed.feed(whole(pg.relation(A, columns=columns, identity="f"), pg.update(A, ("1", UNCHANGED, "7"), old=old)))
    (frame,) = fed.take()[0].changes
    found = change_of(fed, frame)
    assert (found["unchanged"], found["after"]["owner"]) == ([], "long")
    assert found["before"] == {"id": 1, "owner": "long", "cents": 6}


def test_an_old_row_that_does_not_have_the_value_either_leaves_it_unchanged(fed: Fed) -> None:
    """Of a partition whose own identity is a key, below a table whose identity is the full row."""
    fed.catalogue.keys[A] = ("id",)
    old = ("1", None, None)
    fed.feed(whole(pg.relation(A, identity="f"), pg.update(A, ("2", UNCHANGED, "7"), old=old)))
    (frame,) = fed.take()[0].changes
    found = change_of(fed, frame)
    assert (found["unchanged"], found["after"]) == (["owner"], {"id": 2, "owner": None, "cents": 7})


def test_a_table_whose_identity_is_the_full_row_has_the_key_of_the_catalogue(fed: Fed) -> None:
    fed.catalogue.keys = {A: ("id",), B: ("renamed_since",)}
    fed.feed(whole(pg.relation(A, identity="f"), pg.insert(A, "1", "a", "1")))
    fed.feed(whole(pg.relation(B, "entries", ENTRIES, "f"), pg.insert(B, "1", "1")))
    keys = {encoder.table.table: encoder.table.key for encoder in fed.encoders._encoders.values()}
    assert keys == {"accounts": ("id",), "entries": ()}, "of columns that it does not have there is no key"


def test_another_shape_is_another_version_and_the_same_again_is_not(fed: Fed) -> None:
    wider = (*pg.ACCOUNTS, PgColumn("note", TEXT))
    fed.feed(whole(pg.relation(A), pg.insert(A, "1", "a", "1")))
    fed.feed(whole(pg.relation(A, columns=wider), pg.insert(A, "2", "b", "2", "new"), pg.relation(A, columns=wider)))
    fed.feed(whole(pg.insert(A, "3", "c", "3", "newer")))
    rows = [transaction.changes[0].after for transaction in fed.read()]
    assert rows == [(1, "a", 1), (2, "b", 2, "new"), (3, "c", 3, "newer")]
    assert [table.version for table in fed.encoders._encoders] == [1, 2]


def test_a_relation_that_has_no_changes_is_not_registered(fed: Fed) -> None:
    fed.feed(whole(pg.relation(A), pg.relation(B, "accounts_2026"), pg.insert(A, "1", "a", "1")))
    assert [table.table for table in fed.encoders._encoders] == ["accounts"]


# -- what is not understood ------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"b", b"P", b"K", b"?\x01\x02\xff"])
def test_a_message_that_is_not_known_is_an_error_with_its_bytes(fed: Fed, body: bytes) -> None:
    with pytest.raises(LogUnknownError) as caught:
        fed.feed(pg.xlog(body, lsn=0x16_B374D848))
    assert body.hex(" ") in caught.value.what
    assert (caught.value.source, caught.value.thread, caught.value.position) == (SOURCE, 1, "16/B374D848")
    with pytest.raises(LogUnknownError):
        fed.feed(pg.stream_start(9, first=True), pg.xlog(body))


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([pg.relation(A), pg.insert(A, "1", "a", "1")], "outside of a transaction"),
        ([pg.relation(A), pg.truncate(A)], "outside of a transaction"),
        ([pg.commit(2000)], "a commit outside of a transaction"),
        ([pg.begin(7), pg.begin(8)], "begins inside of 7"),
        ([pg.begin(7), pg.insert(A, "1")], f"relation {A}, for which no relation message was received"),
        ([pg.begin(7), pg.truncate(A)], f"relation {A}, for which no relation message was received"),
        ([pg.begin(7), pg.stream_start(9, first=True)], "a block of 9 inside of 7"),
        (
            [pg.stream_start(9, first=True), pg.insert(A, "1", subxid=9)],
            f"relation {A}, for which no relation message was received",
        ),
        ([pg.stream_start(9, first=False)], "whose first block was not received"),
        ([pg.stream_commit(9, 3000)], "of which no block was received"),
        ([pg.begin(7)[:-3]], "truncated or malformed"),
        ([pg.relation(A)[:-3]], "truncated or malformed"),
    ],
)
def test_a_stream_that_contradicts_itself_is_an_error(fed: Fed, given: list[bytes], what: str) -> None:
    with pytest.raises(LogCorruptError) as caught:
        fed.feed(given)
    assert what in caught.value.what
    assert (caught.value.source, caught.value.thread) == (SOURCE, 1)
    assert caught.value.hint


def test_a_row_that_does_not_fit_its_relation_is_an_error(fed: Fed) -> None:
    for wrong in (pg.insert(A, "1", "a"), pg.insert(A, "1", "a", "1").replace(b"\0\x03t", b"\0\x03b")):
        with pytest.raises(LogUnknownError) as caught:
            fed.feed(pg.begin(7), pg.relation(A), wrong)
        assert "public.accounts does not fit" in caught.value.what
        fed.feed(pg.commit(2000))


def test_a_text_that_is_not_of_its_type_names_the_column_and_not_the_value(fed: Fed) -> None:
    with pytest.raises(CodecError) as caught:
        fed.feed(pg.begin(7), pg.relation(A), pg.insert(A, "1", "a", "secret"))
    assert "public.accounts.cents" in caught.value.what
    assert "secret" not in str(caught.value)
    assert (caught.value.source, caught.value.position) == (SOURCE, "16/B374D848")


def test_an_array_of_other_dimensions_names_the_column_and_what_to_do(fed: Fed) -> None:
    columns = (PgColumn("id", INT4, True), PgColumn("m", 1007))
    with pytest.raises(CodecError) as caught:
        fed.feed(pg.begin(7), pg.relation(A, "m", columns), pg.insert(A, "1", "{{1}}"))
    assert "public.m.m: an array of more dimensions" in caught.value.what
    assert "as_text" in (caught.value.hint or "")


# -- values that the log says are unchanged ----------------------------------------------------------------


def _refused(tmp_path: Path, *messages: bytes) -> str:
    with pytest.raises(LogUnknownError) as caught:
        Fed(tmp_path).feed(pg.begin(7), *messages)
    assert caught.value.position
    assert caught.value.hint
    return caught.value.what


def test_an_insert_with_an_unchanged_column_is_refused_by_name(tmp_path: Path) -> None:
    what = _refused(tmp_path, pg.relation(1), pg.insert(1, "1", UNCHANGED, "5"))
    assert "a row of public.accounts that must be complete has no value for owner" in what


def test_an_insert_with_an_unchanged_column_in_a_large_transaction_is_refused(tmp_path: Path) -> None:
    fed = Fed(tmp_path)
    fed.feed(pg.block(7, pg.relation(1, subxid=7), pg.insert(1, "1", UNCHANGED, "5", subxid=7), first=True))
    (transaction,) = fed.feed(pg.stream_commit(7, 2000)).take()
    with pytest.raises(LogUnknownError, match="must be complete has no value for owner") as caught:
        list(transaction.changes)
    assert (caught.value.source, caught.value.thread, caught.value.position) == (SOURCE, 1, "0/7D0")


def test_an_old_row_with_an_unchanged_column_is_refused(tmp_path: Path) -> None:
    old = pg.update(1, ("1", "b", "5"), old=("1", UNCHANGED, "5"))
    assert "no value for owner" in _refused(tmp_path, pg.relation(1, identity="f"), old)
    assert "no value for id" in _refused(tmp_path, pg.relation(1), pg.delete(1, key=(UNCHANGED, None, None)))


def test_an_update_without_the_value_of_its_key_is_refused(tmp_path: Path) -> None:
    what = _refused(tmp_path, pg.relation(1), pg.update(1, (UNCHANGED, "b", "5")))
    assert "without the value of its key (id)" in what


def test_an_unchanged_key_is_taken_from_the_old_key(tmp_path: Path) -> None:
    fed = Fed(tmp_path).feed(
        pg.begin(7), pg.relation(1), pg.update(1, (UNCHANGED, "b", UNCHANGED), key=("1", None, None))
    )
    ((change,),) = [t.changes for t in fed.feed(pg.commit(2000)).read()]
    assert change.after == (1, "b", None)
