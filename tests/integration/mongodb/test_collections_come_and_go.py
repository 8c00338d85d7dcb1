"""Drop, rename, a database that is dropped, collections that come later: what the log says of them, and what not."""

from __future__ import annotations

from typing import Any

from tests.integration.mongodb.reading import Read, reading
from tests.support.mongodb import MongoDatabase

from lowwater.records.positions import ORDER_MAX


def _changes(read: Read) -> list[tuple[str, str, Any]]:
    return [(c.op, c.table, (c.after or c.before or {}).get("_id")) for changes in read.new() for c in changes]


def test_a_dropped_collection_is_emptied_and_one_of_its_name_begins_anew(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        mongo.db.a.insert_one({"_id": 1})
        mongo.db.a.drop()
        mongo.create("a")
        mongo.db.a.insert_one({"_id": "another type"})
        assert _changes(read) == [("c", "a", 1), ("t", "a", None), ("c", "a", "another type")]


def test_a_renamed_collection_is_emptied_and_its_new_name_is_to_be_copied(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    with reading(mongo) as read:
        mongo.db.a.insert_one({"_id": 1})
        mongo.db.b.insert_one({"_id": 2})
        mongo.db.a.rename("b", dropTarget=True)
        mongo.db.b.insert_one({"_id": 3})
        found = _changes(read)
        assert found[:2] == [("c", "a", 1), ("c", "b", 2)]
        assert {("t", "a", None), ("t", "b", None)} <= set(found)
        assert found[-1] == ("c", "b", 3)
        assert list(read.stale) == [f"{mongo.name}.b"]
        assert read.stale[f"{mongo.name}.b"].order <= read.mark.order
        resume, encoders = read.mark.resume, read.encoders
    with reading(mongo, resume=resume, encoders=encoders) as again:
        assert list(again.stale) == [f"{mongo.name}.b"], "remembered"
        mongo.db.b.drop()
        again.new()
        assert list(again.stale) == [f"{mongo.name}.b"], "a copy from before the rename is never right again"


def test_what_gets_a_captured_name_or_loses_it_counts_from_there(mongo: MongoDatabase) -> None:
    mongo.create("outside", "inside")
    with reading(mongo, tables=[f"{mongo.name}.inside"]) as read:
        mongo.db.outside.insert_one({"_id": 1})
        mongo.db.inside.insert_one({"_id": 2})
        mongo.db.inside.rename("gone")
        mongo.db.gone.insert_one({"_id": 3})
        mongo.db.outside.rename("inside")
        mongo.db.inside.insert_one({"_id": 4})
        found = _changes(read)
        assert found == [("c", "inside", 2), ("t", "inside", None), ("c", "inside", 4)]
        assert list(read.stale) == [f"{mongo.name}.inside"]


def test_a_dropped_database_ends_its_stream_and_another_begins(mongo: MongoDatabase) -> None:
    mongo.create("a", "b")
    with reading(mongo) as read:
        mongo.db.a.insert_one({"_id": 1})
        mongo.db.b.insert_one({"_id": 1})
        assert len(read.new()) == 2
        mongo.client.drop_database(mongo.name)
        found = _changes(read)
        assert sorted(found) == [("t", "a", None), ("t", "b", None)]
        mongo.create("a")
        mongo.db.a.insert_one({"_id": 2})
        assert _changes(read) == [("c", "a", 2)]
        resume = read.mark.resume
    mongo.db.a.insert_one({"_id": 3})
    with reading(mongo, resume=resume) as again:
        assert _changes(again) == [("c", "a", 3)]


def test_begun_again_right_behind_the_end_of_a_database(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        mongo.db.a.insert_one({"_id": 1})
        mongo.client.drop_database(mongo.name)
        read.new()
        resume = read.mark.resume
    mongo.create("a")
    mongo.db.a.insert_one({"_id": 2})
    with reading(mongo, resume=resume) as again:
        assert _changes(again) == [("c", "a", 2)]


def test_several_databases_are_one_stream(mongo: MongoDatabase) -> None:
    other = MongoDatabase(mongo.server)
    try:
        mongo.create("a")
        other.create("a")
        with reading(mongo, tables=[f"{mongo.name}.a", f"{other.name}.*"]) as read:

            def work(session: Any, db: Any) -> None:
                db.a.insert_one({"_id": 1}, session=session)
                mongo.client[other.name].a.insert_one({"_id": 1}, session=session)

            mongo.transaction(work)
            (found,) = read.new()
            assert [(c.op, c.table) for c in found] == [("c", "a"), ("c", "a")]
    finally:
        other.drop()


def test_a_source_that_is_given_more_or_fewer_databases_goes_on_where_it_was(mongo: MongoDatabase) -> None:
    """The stream is then another one, which does not know the tokens of the first."""
    other = MongoDatabase(mongo.server)
    try:
        mongo.create("a")
        other.create("a")
        both = [f"{mongo.name}.a", f"{other.name}.a"]
        with reading(mongo, tables=both) as read:
            mongo.db.a.insert_one({"_id": 1})
            other.db.a.insert_one({"_id": 2})
            assert len(_changes(read)) == 2
            resume = read.mark.resume
        for tables, wanted in ((both[:1], [3]), (both, [5, 6]), (both[:1], [7])):
            mongo.db.a.insert_one({"_id": wanted[0]})
            other.db.a.insert_one({"_id": wanted[0] + 1})
            with reading(mongo, resume=resume, tables=tables) as read:
                assert [id_ for _, _, id_ in _changes(read)] == wanted
                resume = read.mark.resume
    finally:
        other.drop()


def test_a_collection_that_comes_later_is_captured_from_its_first_document_on(mongo: MongoDatabase) -> None:
    mongo.create("a")
    with reading(mongo) as read:
        mongo.create("later")
        mongo.db.later.insert_one({"_id": 1})
        mongo.db.later.update_one({"_id": 1}, {"$set": {"x": 1}})
        assert [op for op, _, _ in _changes(read)] == ["c", "u"]


def test_a_view_sees_when_what_it_planned_is_no_more(mongo: MongoDatabase) -> None:
    mongo.create("a", "empty")
    mongo.db.a.insert_one({"_id": 1})
    names = [f"{mongo.name}.{name}" for name in ("a", "empty", "nowhere")]
    with reading(mongo) as read:
        view = read.source.begin_view(names)
        try:
            planned = [table for _ in names for table in view.plan(10)]
            assert [(t.table.full_name, len(t.chunks)) for t in planned] == list(zip(names, (1, 1, 0), strict=True))
            view._kept_at = 0.0  # type: ignore[attr-defined]
            assert view.keep([names[0]]) == []
            mongo.db.a.drop()
            mongo.create("a")
            view._kept_at = 0.0  # type: ignore[attr-defined]
            assert view.keep([names[0]]) == [names[0]]
        finally:
            view.close()
        end = read.stream.end_of_log()()
        assert end is not None
        assert end < ORDER_MAX
