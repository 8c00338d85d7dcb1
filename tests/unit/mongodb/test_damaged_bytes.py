"""Answers, events and documents with damaged bytes: nothing comes out but errors of ours, and nothing hangs."""

from __future__ import annotations

import random
from typing import Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64
from tests.unit.mongodb.documents import BY_HAND, VALUES, document, element, encode, event, token
from tests.unit.mongodb.test_assembly import Reading

from lowwater.errors import CodecError, LogCorruptError, LowwaterError, SourceError
from lowwater_extractor.sources.mongodb.connect import named_errors
from lowwater_extractor.sources.mongodb.shapes import Hidden, RowReader, Shape
from lowwater_extractor.sources.mongodb.wire import raw_bson as rb
from lowwater_extractor.sources.mongodb.wire.events import read_reply

WHOLE = {name: value for name, value, _ in VALUES}
REPLY = {
    "cursor": {"nextBatch": [{"_id": 1}, {"_id": 2}], "postBatchResumeToken": {"_data": token(5)}, "id": Int64(7)},
    "ok": 1.0,
}
ROUNDS = 3_000


def _damaged(data: bytes, source: random.Random) -> bytes:
    """Some bytes are others, or are not there, or are there twice."""
    found = bytearray(data)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(found))
        what = source.randrange(4)
        if what == 0:
            found[at] = source.randrange(256)
        elif what == 1:
            found[at : at + 4] = source.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\xfa\xff\xff\xff"])
        elif what == 2:
            del found[at : at + source.randint(1, 8)]
        else:
            found[at:at] = found[at : at + source.randint(1, 8)]
        if not found:
            break
    return bytes(found)


@pytest.mark.timeout(120)
def test_damaged_events_raise_errors_of_ours_with_source_and_position() -> None:
    source = random.Random(1)
    good = [
        event(2_000, doc={"_id": 1, **WHOLE}, transaction=4),
        event(2_000, "update", doc={"_id": 1, "a": {"b": [1, "x"]}}, before={"_id": 1}, transaction=4),
        event(2_000, "rename", to={"db": "shop", "coll": "kept"}),
    ]
    found: list[LowwaterError] = []
    for _ in range(ROUNDS):
        reading = Reading()
        try:
            reading.batch(_damaged(source.choice(good), source), until=token(2_000))
            reading.batch(until=token(2_001))
            assert reading.assembler.over_token
            assert reading.assembler.read_to == ""
        except LowwaterError as error:
            found.append(error)
    assert len(found) > ROUNDS // 4
    assert all(isinstance(error, SourceError | CodecError) for error in found)
    assert all(error.source == "s" and error.position and error.hint for error in found)


@pytest.mark.timeout(120)
def test_damaged_answers_raise_errors_of_ours() -> None:
    source = random.Random(2)
    good = encode(REPLY)
    assert read_reply(good).cursor == 7
    found: list[LowwaterError] = []
    for _ in range(ROUNDS):
        try:
            read_reply(_damaged(good, source))
        except LogCorruptError as error:
            found.append(error)
    assert len(found) > ROUNDS // 4
    assert all(error.hint for error in found)


@pytest.mark.timeout(120)
def test_damaged_documents_of_a_copy_raise_errors_of_ours() -> None:
    source = random.Random(3)
    parts = [element(type_, name, raw) for name, type_, raw, _ in BY_HAND]
    good = [encode({"_id": 1, **WHOLE}), document(element(16, "_id", b"\1\0\0\0"), *parts)]
    shape = Shape("d", "c").grown(good[0], 0, 100).grown(good[1], 0, 100)
    reader = RowReader(shape, Hidden(), 100, is_growing=False)
    found: list[LowwaterError] = []
    for _ in range(ROUNDS):
        try:
            with rb.named_damage("s", "d.c"):
                reader.read(_damaged(source.choice(good), source))
        except LowwaterError as error:
            found.append(error)
    assert len(found) > ROUNDS // 4
    assert all(error.hint for error in found)


@pytest.mark.parametrize(
    "reply",
    [{}, {"cursor": {}}, {"cursor": 5}, {"cursor": {"nextBatch": [], "id": Int64(1)}},
     {"cursor": {"nextBatch": [], "id": Int64(1), "postBatchResumeToken": {}}},
     {"cursor": {"nextBatch": [], "id": Int64(1), "postBatchResumeToken": {"_data": Binary(b"\xff")}}}],
)  # fmt: skip
def test_an_answer_without_what_it_must_have_is_named(reply: dict[str, Any]) -> None:
    with pytest.raises(LogCorruptError) as refused:
        read_reply(encode(reply))
    assert refused.value.hint


def test_an_event_of_a_name_that_is_not_utf8_is_named() -> None:
    wrong = event(2_000, doc={"_id": 1}).replace(b"orders", b"order\xff")
    with pytest.raises(LogCorruptError) as refused:
        Reading().batch(wrong, until=token(2_000))
    assert (refused.value.source, refused.value.thread) == ("s", 1)
    assert refused.value.position


def test_a_length_that_leads_back_does_not_hang() -> None:
    wrong = document(element(16, "_id", b"\1\0\0\0"), element(2, "a", (-12).to_bytes(4, "little", signed=True)))
    with pytest.raises(LowwaterError), rb.named_damage("s", "d.c"):
        RowReader(Shape("d", "c").with_id_as_json(), Hidden(), 10, is_growing=False).read(wrong)


def test_what_the_driver_cannot_decode_is_named() -> None:
    import bson

    with pytest.raises(LogCorruptError, match="hello") as refused, named_errors("s", "hello"):
        bson.decode(b"\x05\0\0\0\1")
    assert refused.value.source == "s"


def test_an_event_that_a_balancer_made_stops_the_source_by_name() -> None:
    with pytest.raises(SourceError, match="fromMigrate") as refused:
        Reading().batch(event(2_000, doc={"_id": 1}, fromMigrate=True))
    assert refused.value.position == "0.2000"
    assert "shard" in (refused.value.hint or "")
