"""What a config may say, and the questions that are made of it."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.objectid import ObjectId
from pydantic import ValidationError

from lowwater_extractor.incremental.cursors import LOWEST, Range
from lowwater_extractor.sources.mongodb.config import FieldCursorConfig, MongoConfig
from lowwater_extractor.sources.mongodb.cursor import query as cq
from lowwater_extractor.sources.mongodb.shapes import Shape
from lowwater_extractor.sources.mongodb.snapshot.chunks import Bounds
from lowwater_extractor.sources.mongodb.types import FieldType
from lowwater_extractor.sources.mongodb.wire.change_cursor import pipeline_of

GOOD: dict[str, Any] = {"hosts": ["h:1"], "replica_set": "r", "tables": ["d.c"]}
CURSOR = FieldCursorConfig(primary="at")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"hosts": ["user:secret@h:1"]}, "user"),
        ({"tables": ["d"]}, "database.collection"),
        ({"tables": ["*.c"]}, "all collections"),
        ({"password": "secret"}, "password"),
        ({"options": {"tlsCertificateKeyFilePassword": "secret"}}, "tlsCertificateKeyFilePassword"),
        ({"options": {"username": "x"}}, "has its own setting"),
        ({"poll_seconds": 1}, "incremental only"),
        ({"mode": "incremental"}, "no cursor for d.c"),
        ({"mode": "incremental", "cursors": {"d.c": {"primary": "_id"}}}, "the same field"),
        ({"mode": "incremental", "cursors": {"d.c": {"primary": "a"}, "d.x": {"primary": "a"}}}, "d.x"),
    ],
)
def test_a_wrong_setting_is_refused_and_no_secret_is_shown(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        MongoConfig(**{**GOOD, **more})
    found = "; ".join(f"{e['loc']} {e['msg']}" for e in refused.value.errors(include_input=False))
    assert words in found
    assert "secret" not in found.replace("holds a secret", "")


def test_one_database_is_its_own_stream_and_several_are_one() -> None:
    one = pipeline_of(MongoConfig(**GOOD), {})
    assert "allChangesForCluster" not in one[0]["$changeStream"]
    assert one[0]["$changeStream"]["fullDocument"] == "whenAvailable"
    assert {"ns.db": "d", "ns.coll": "c"} in one[1]["$match"]["$or"]
    assert {"to.db": "d", "to.coll": "c"} in one[1]["$match"]["$or"]
    two = pipeline_of(MongoConfig(**{**GOOD, "tables": ["d.c", "e.*"]}), {})
    assert two[0]["$changeStream"]["allChangesForCluster"]
    assert {"ns.db": "e"} in two[1]["$match"]["$or"]
    everything = pipeline_of(MongoConfig(**{**GOOD, "tables": ["*.*"], "before": "key"}), {})
    assert not any("$match" in stage for stage in everything)
    assert everything[0]["$changeStream"]["fullDocumentBeforeChange"] == "off"


def test_patterns_never_stand_for_the_servers_own() -> None:
    config = MongoConfig(**{**GOOD, "tables": ["*.*"]})
    assert config.is_wanted("d.c")
    assert not config.is_wanted("d.system.profile")


@pytest.mark.parametrize(
    "value", [5, Int64(1 << 60), 0.5, Decimal128("1.10"), "é", ObjectId(), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]
)
def test_a_bound_keeps_its_value_and_its_type(value: Any) -> None:
    bound = cq.bound_of(CURSOR, {"at": value, "_id": "x"})
    found = cq.value_of(bound[0] or "")
    assert found == value
    assert type(found) is type(value)
    assert cq.is_time(bound) is isinstance(value, dt.datetime)
    assert cq.kinds_of(value)


def test_what_has_no_order_is_no_cursor() -> None:
    assert not any(map(cq.kinds_of, (True, {}, [], None, b"")))


def test_a_range_has_the_nulls_with_the_first_one_only() -> None:
    to = cq.bound_of(CURSOR, {"at": 5, "_id": 1})
    assert cq.in_range(CURSOR, Range(None, LOWEST)) == {"at": None}
    assert {"at": None} in cq.in_range(CURSOR, Range(None, to))["$or"]
    assert {"at": None} not in cq.in_range(CURSOR, Range(to, to))["$and"]


def test_bounds_of_a_chunk_come_back_with_the_columns_that_they_were_planned_with() -> None:
    shape = Shape("d", "a.b", FieldType.JSON, {"é": FieldType.DECIMAL})
    bounds = Bounds(shape, b"\x01", None)
    assert Bounds.decode(bounds.encode()) == bounds
