"""Every type by the stream and by the copy, on a real server: the same rows, and nothing lost."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import Any

import pytest
from bson import json_util
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from bson.raw_bson import RawBSONDocument
from tests.integration.mongodb.reading import copied, reading, source_of
from tests.support.mongodb import MongoDatabase
from tests.unit.mongodb.documents import BY_HAND, VALUES, document, element

from lowwater.codec.rules import ColumnRules, Mask
from lowwater_extractor.sources.mongodb.snapshot import other_ids as other_ids_module
from lowwater_extractor.sources.mongodb.snapshot import view as view_module

#: pymongo cannot write symbols, which old applications stored
_SYMBOL_B = RawBSONDocument(document(element(14, "_id", b"\2\0\0\0b\0")))


def _rows(table: Any) -> list[dict[str, Any]]:
    """As the stream's: instants as microseconds."""
    for number, field in enumerate(table.schema):
        if str(field.type).startswith("timestamp"):
            table = table.set_column(number, field.name, table[field.name].cast("int64"))
    found: list[dict[str, Any]] = table.to_pylist()
    return found


def test_every_type_is_the_same_by_stream_and_by_copy(mongo: MongoDatabase) -> None:
    mongo.create("types")
    with reading(mongo) as read:
        mongo.db.types.insert_one({"_id": 0, **{name: value for name, value, _ in VALUES}})
        # a second document with the same fields, each of the type of the one behind it
        turned = [value for _, value, _ in VALUES[1:]] + [VALUES[0][1]]
        mongo.db.types.insert_one({"_id": 1, **{v[0]: value for v, value in zip(VALUES, turned, strict=True)}})
        elements = [element(type_, name, raw) for name, type_, raw, _ in BY_HAND if type_ != 12]
        by_hand = document(element(16, "_id", b"\2\0\0\0"), *elements)
        mongo.db.types.insert_one(RawBSONDocument(by_hand))
        transactions = read.new()
        streamed = [change.after for (change,) in transactions]
        names = list(streamed[-1] or {})
        assert {name for name, _, _ in VALUES if name != "null"} <= {n.replace("_x20_", " ") for n in names}
        again = _rows(copied(read, f"{mongo.name}.types"))
    for row, other in zip(streamed, again, strict=True):
        assert row is not None
        plain = {name.replace("_x20_", " ").replace("_x2d_", "-"): value for name, value in row.items()}
        for name, value in other.items():
            if value is not None or plain.get(name) is not None:
                assert plain.get(name) == value or str(plain.get(name)) == str(value), name


def test_an_empty_field_name_a_dollar_and_a_point_are_kept(mongo: MongoDatabase) -> None:
    mongo.create("names")
    with reading(mongo) as read:
        mongo.db.names.insert_one({"_id": 1, "": 1, "a.b": 2, "$c": 3, "_rest": 4, "_op": 5, "é": 6})
        (change,) = read.one()
        row = change.after or {}
        assert json.loads(row["_rest"]) == {"": 1, "_rest": 4}
        assert sorted(v for n, v in row.items() if n not in ("_id", "_rest")) == [2, 3, 5, 6]
        ((copy,),) = [_rows(copied(read, f"{mongo.name}.names"))]
        assert {n: v for n, v in copy.items() if n != "_rest"} == {"_id": 1, "a.b": 2, "$c": 3, "_op_": 5, "é": 6}


def test_a_new_field_and_a_wider_number_are_new_versions_and_a_conflict_is_not(mongo: MongoDatabase) -> None:
    mongo.create("orders")
    with reading(mongo) as read:
        orders = mongo.db.orders
        orders.insert_one({"_id": 1, "n": 1})
        orders.insert_one({"_id": 2, "n": 2, "name": "x"})
        orders.insert_one({"_id": 3, "n": Int64(1 << 40)})
        orders.insert_one({"_id": 4, "n": "many"})
        orders.update_one({"_id": 4}, {"$set": {"n": 4}, "$unset": {"name": 1}})
        found = [change for changes in read.new() for change in changes]
    assert [change.version for change in found] == [1, 2, 3, 3, 3]
    assert [change.after for change in found] == [
        {"_id": 1, "n": 1, "_rest": None},
        {"_id": 2, "n": 2, "name": "x", "_rest": None},
        {"_id": 3, "n": 1 << 40, "name": None, "_rest": None},
        {"_id": 4, "n": None, "name": None, "_rest": '{"n":"many"}'},
        {"_id": 4, "n": 4, "name": None, "_rest": None},
    ]
    assert found[-1].before == found[-2].after


def test_columns_are_remembered_over_a_restart(mongo: MongoDatabase) -> None:
    mongo.create("orders")
    with reading(mongo) as read:
        mongo.db.orders.insert_one({"_id": 1, "a": 1, "b": "x"})
        read.new()
        resume, encoders = read.mark.resume, read.encoders
    mongo.db.orders.insert_one({"_id": 2, "b": "y"})
    with reading(mongo, resume=resume, encoders=encoders) as again:
        (change,) = again.one()
    assert (change.version, change.after) == (1, {"_id": 2, "a": None, "b": "y", "_rest": None})


@pytest.mark.parametrize("ids", [[ObjectId(), ObjectId()], ["a", "é"], [1, Int64(1 << 40)], [{"a": 1}, {"a": 2}]])
def test_ids_of_one_type_are_keys_by_stream_and_copy(mongo: MongoDatabase, ids: list[Any]) -> None:
    mongo.create("keys")
    with reading(mongo, chunk_rows=1) as read:
        for number, id_ in enumerate(ids):
            mongo.db.keys.insert_one({"_id": id_, "n": number})
        streamed = {(c.after or {})["_id"]: (c.after or {})["n"] for (c,) in read.new()}
        copy = {row["_id"]: row["n"] for row in _rows(copied(read, f"{mongo.name}.keys"))}
    assert streamed == copy
    assert sorted(copy.values()) == [0, 1]


def test_ids_of_several_types_are_copied_and_streamed_as_json(mongo: MongoDatabase) -> None:
    """Also in many chunks: a range of keys reaches over the types."""
    mongo.create("keys")
    ids: list[Any] = [1, 2.5, "x", ObjectId(), True, dt.datetime(2024, 1, 1), Decimal128("7"), {"a": 1}]
    ids += list(range(10, 60)) + [f"k{n}" for n in range(50)]
    with reading(mongo, chunk_rows=10, ids_as_json=[f"{mongo.name}.keys"]) as read:
        mongo.db.keys.insert_many([{"_id": id_} for id_ in ids])
        streamed = {(c.after or {})["_id"] for changes in read.new() for c in changes}
        rows = _rows(copied(read, f"{mongo.name}.keys"))
    assert len(rows) == len(ids)
    assert {row["_id"] for row in rows} == streamed
    assert sorted(map(str, map(json_util.loads, streamed))) == sorted(map(str, ids))


def test_an_id_of_another_type_makes_the_column_json_in_stream_and_copy(mongo: MongoDatabase) -> None:
    mongo.create("keys")
    with reading(mongo, sample_documents=1) as read:
        mongo.db.keys.insert_many([{"_id": n} for n in range(50)])
        read.new()
        mongo.db.keys.insert_one({"_id": "x"})
        (change,) = read.one()
        assert (change.after or {})["_id"] == '"x"'
        assert {row["_id"] for row in _rows(copied(read, f"{mongo.name}.keys"))} == {'"x"', *map(str, range(50))}


@pytest.mark.parametrize("odd", [1.5, Decimal128("1.10"), Int64(5), {"a": 1.5, "b": [Decimal128("7")]}], ids=str)
def test_stream_continues_after_an_event_whatever_its_id_is(mongo: MongoDatabase, odd: Any) -> None:
    """The position is the token of an event, which contains the `_id`; the server reads it again."""
    mongo.create("keys")
    settings: dict[str, Any] = {"batch_documents": 1, "ids_as_json": [f"{mongo.name}.keys"]}
    with reading(mongo, **settings) as read:
        mongo.db.keys.insert_many([{"_id": id_} for id_ in ("first", odd, "last")])
        resumes, seen = [(0, read.mark.resume)], 0
        while seen < 3:
            seen += len(read.poll())
            resumes.append((seen, read.mark.resume))
        encoders = read.encoders
    # where its events would be read from after a crash
    assert {count for count, _ in resumes} == {0, 1, 2, 3}
    for count, resume in resumes:
        with reading(mongo, resume=resume, encoders=encoders, **settings) as again:
            assert len(again.new()) >= 3 - count


def test_a_copy_looks_at_both_ends_of_the_ids(mongo: MongoDatabase) -> None:
    """A sample of one document would not find the one that is of another type."""
    mongo.create("keys")
    mongo.db.keys.insert_many([{"_id": n} for n in range(200)] + [{"_id": ObjectId()}])
    with reading(mongo, sample_documents=1) as read:
        assert len(_rows(copied(read, f"{mongo.name}.keys"))) == 201


@pytest.mark.parametrize(
    ("around", "odd"),
    [
        ([1, 9], 1.5),
        ([1, 9], Decimal128("7")),
        ([1, 1 << 62], float(1 << 60)),
        (["a", "c"], _SYMBOL_B),
    ],
    ids=["fraction", "decimal", "inexact", "symbol"],
)
def test_an_id_of_another_type_between_the_others_is_found_while_the_copy_waits(
    mongo: MongoDatabase, around: list[Any], odd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is at neither end, and not in the sample; the task that reads it cannot go on."""
    monkeypatch.setattr(view_module, "_KEEP_SECONDS", 0.0)
    name = f"{mongo.name}.keys"
    mongo.create("keys")
    mongo.db.keys.insert_many([{"_id": id_} for id_ in around])
    with reading(mongo) as read:
        view = read.source.begin_view([name])
        view.plan(1)
        mongo.db.keys.insert_one(odd if isinstance(odd, RawBSONDocument) else {"_id": odd})
        deadline = time.monotonic() + 30
        while view.keep([name]) != [name]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        view.close()
        assert len(_rows(copied(read, name))) == 3


def test_ids_that_the_column_can_hold_do_not_end_a_copy(mongo: MongoDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_module, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(other_ids_module, "_PAUSE_SECONDS", 0.0)
    name = f"{mongo.name}.keys"
    mongo.create("keys")
    mongo.db.keys.insert_many([{"_id": id_} for id_ in (1, 2.0, Int64(1 << 60), float(1 << 53), -5.0, 0.0)])
    with reading(mongo) as read:
        view = read.source.begin_view([name])
        view.plan(1)
        for _ in range(50):
            assert view.keep([name]) == []
            time.sleep(0.01)
        view.close()


def test_an_empty_collection_is_copied_with_no_rows(mongo: MongoDatabase) -> None:
    mongo.create("empty")
    with reading(mongo) as read:
        assert copied(read, f"{mongo.name}.empty").num_rows == 0


def test_what_a_copy_finds_beyond_its_version_is_in_the_rest(mongo: MongoDatabase) -> None:
    """The version is known from a sample: of one document here."""
    mongo.create("many")
    mongo.db.many.insert_many([{"_id": n, f"f{n}": n} for n in range(50)])
    with reading(mongo, sample_documents=1, chunk_rows=20) as read:
        rows = _rows(copied(read, f"{mongo.name}.many"))
    found = {}
    for row in rows:
        rest = json.loads(row["_rest"]) if row["_rest"] else {}
        found[row["_id"]] = {**{n: v for n, v in row.items() if n not in ("_id", "_rest") and v is not None}, **rest}
    assert found == {n: {f"f{n}": n} for n in range(50)}


def test_rules_hide_fields_of_any_type_by_stream_and_by_copy(mongo: MongoDatabase) -> None:
    mongo.create("people")
    name = f"{mongo.name}.people"
    rules = ColumnRules(frozenset({f"{name}.drop"}), {f"{name}.mask": Mask.HASH}, b"key")
    values: list[Any] = ["secret", 31337, {"a": "secret"}, None]
    with reading(mongo, tables=[name]) as read:
        mongo.db.people.insert_many([{"_id": n, "drop": v, "mask": v, "ok": n} for n, v in enumerate(values)])
        shown = str(copied(read, name, rules).to_pylist())
    assert "secret" not in shown
    assert "31337" not in shown
    source = source_of(mongo, tables=[name])
    assert {c.name for t in source.discover() for c in t.columns} == {"_id", "drop", "mask", "ok", "_rest"}
