"""Events made by hand: where a transaction ends, what is marked, and what is read again after a stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pytest
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.timestamp import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance.kit import Encoders
from tests.unit.mongodb.documents import encode, event, token

from lowwater.codec.rules import ColumnRules
from lowwater.errors import CodecError, LogCorruptError, LogGapError, LogUnknownError, MarkBrokenError
from lowwater.records.positions import Order
from lowwater_extractor.sources.mongodb.assembler import Assembler
from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.position import ClusterTime, Resume, time_of
from lowwater_extractor.sources.mongodb.relations import Shapes
from lowwater_extractor.sources.mongodb.stream import CapturedTables
from lowwater_extractor.sources.mongodb.wire.events import read_reply
from lowwater_extractor.spill import SpillSpace

CONFIG = MongoConfig(hosts=["h"], replica_set="r", tables=["shop.*"])
KEYS_ONLY = CONFIG.model_copy(update={"before": "key"})
START = 1_000


class Reading:
    def __init__(
        self, tmp_path: Path | None = None, bytes_max: int = 1 << 20, encoders: Any = None, config: MongoConfig = CONFIG
    ) -> None:
        self.encoders = encoders or Encoders()
        self.shapes = Shapes(config)
        self.tables = CapturedTables(config, "s", self.shapes, self.encoders, {})
        self.assembler = Assembler("s", self.tables, SpillSpace(tmp_path), bytes_max)
        self.assembler.begin(token(START, 0), ClusterTime(START - 1))

    def batch(self, *events: bytes, until: str = "") -> None:
        """As the server sends it: its token is the last event's, or one behind it."""
        self.assembler.feed(events)
        last = until or (bson.decode(events[-1])["_id"]["_data"] if events else token(START, 0))
        self.assembler.end_batch(last, is_empty=not events)

    def found(self) -> list[tuple[Order, str, int]]:
        return [(t.order, t.txid, t.count) for t in self.assembler.committed]

    @property
    def mark(self) -> int:
        return self.assembler.over_at


def _doc(number: int, **more: Any) -> dict[str, Any]:
    return {"_id": number, "n": number, **more}


def test_a_single_write_is_over_with_the_next_later_event() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)))
    assert (reading.found(), reading.mark) == ([], START - 1)
    reading.batch(event(2_001, doc=_doc(2)))
    assert reading.found() == [(Order(2_000, 1), "2000-1", 1)]
    assert reading.mark == 2_000
    assert reading.assembler.over_token == token(2_000)


def test_or_with_a_token_of_a_later_time_which_marks_one_less() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)), until=token(3_000, 0))
    assert len(reading.found()) == 1
    assert (reading.mark, reading.assembler.over_token) == (2_999, token(3_000, 0))


def test_or_when_the_server_has_nothing_more() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)))
    reading.batch()
    assert len(reading.found()) == 1
    assert (reading.mark, reading.assembler.over_token) == (2_000, token(2_000))


def test_a_token_of_the_same_time_ends_nothing() -> None:
    """The batch was full in the middle of a transaction."""
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1), transaction=7), until=token(2_000))
    reading.batch(event(2_000, doc=_doc(2), transaction=7), until=token(2_000, 0))
    assert (reading.found(), reading.mark) == ([], START - 1)
    reading.batch()
    assert [(order, count) for order, _, count in reading.found()] == [(Order(2_000, 1), 2)]


def test_tokens_move_an_idle_source_on_and_never_back() -> None:
    reading = Reading()
    for time, wanted in ((1_500, 1_499), (1_500, 1_499), (1_200, 1_499), (1_600, 1_599)):
        reading.batch(until=token(time, 0))
        assert reading.mark == wanted


def test_events_of_one_session_and_number_are_one_transaction() -> None:
    reading = Reading()
    events = [event(2_000, doc=_doc(n), transaction=7) for n in range(5)]
    reading.batch(*events[:3])
    reading.batch(*events[3:], until=token(2_001, 0))
    ((order, txid, count),) = reading.found()
    assert (order, count) == (Order(2_000, 1), 5)
    assert txid == f"{b's'.hex() * 16}-7"


def test_transactions_of_one_time_are_told_apart_and_counted() -> None:
    reading = Reading()
    reading.batch(
        event(2_000, doc=_doc(1)),
        event(2_000, doc=_doc(2)),
        event(2_000, doc=_doc(3), transaction=1),
        event(2_000, doc=_doc(4), transaction=1),
        event(2_000, doc=_doc(5), transaction=2),
        until=token(2_001, 0),
    )
    assert [(order.minor, count) for order, _, count in reading.found()] == [(1, 1), (2, 1), (3, 2), (4, 1)]


def test_what_is_whole_of_a_time_is_handed_over_but_not_marked_before_the_time_is_over() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)), event(2_000, doc=_doc(2)))
    assert [order for order, _, _ in reading.found()] == [Order(2_000, 1)]
    assert reading.mark == START - 1
    assert reading.assembler.over_token == token(START, 0)
    assert reading.assembler.read_to == token(2_000)


def test_an_event_of_a_time_that_was_over_stops_the_source() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)))
    reading.batch()
    with pytest.raises(MarkBrokenError) as refused:
        reading.batch(event(2_000, doc=_doc(2)))
    assert refused.value.source == "s"
    assert refused.value.position == "0.2000"


def test_a_large_transaction_goes_to_disk_and_comes_back_in_its_order(tmp_path: Path) -> None:
    reading = Reading(tmp_path, bytes_max=2_000)
    events = [event(2_000, doc=_doc(n, text="x" * 50), transaction=1) for n in range(500)]
    for start in range(0, 500, 100):
        reading.batch(*events[start : start + 100])
    reading.batch()
    (transaction,) = reading.assembler.committed
    assert transaction.count == 500
    assert list(tmp_path.glob("lowwater-spill-*/*.spill"))
    rows = [reading.encoders.decode(frame, n).after for n, frame in enumerate(transaction.changes, 1)]
    assert [row[0] for row in rows if row] == list(range(500))


# -- kinds of events -------------------------------------------------------------------------------------


def _changes(reading: Reading) -> list[tuple[str, str, Any, Any]]:
    found = []
    for transaction in reading.assembler.committed:
        for seq, frame in enumerate(transaction.changes, 1):
            change = reading.encoders.decode(frame, seq)
            found.append((change.op, change.table, change.before, change.after))
    return found


def test_inserts_updates_replaces_and_deletes_carry_whole_documents() -> None:
    reading = Reading()
    reading.batch(
        event(2_000, doc=_doc(1)),
        event(2_001, "update", _doc(1, a="x"), before=_doc(1)),
        event(2_002, "replace", _doc(1), before=_doc(1, b=2)),
        event(2_003, "delete", before=_doc(1)),
        until=token(2_004, 0),
    )
    assert _changes(reading) == [
        ("c", "shop.orders", None, (1, 1, None)),
        ("u", "shop.orders", (1, 1, None, None), (1, 1, "x", None)),
        ("u", "shop.orders", (1, 1, None, 2, None), (1, 1, None, None, None)),
        ("d", "shop.orders", (1, 1, None, None, None), None),
    ]


def test_without_images_of_before_a_delete_carries_its_key() -> None:
    reading = Reading(config=KEYS_ONLY)
    reading.batch(
        event(2_000, "update", _doc(1)),
        event(2_001, "delete", documentKey={"_id": 1}),
        until=token(2_004, 0),
    )
    assert _changes(reading) == [
        ("u", "shop.orders", None, (1, 1, None)),
        ("d", "shop.orders", (1, None, None), None),
    ]
    assert not reading.tables.stale.found


@pytest.mark.parametrize("config", [CONFIG, KEYS_ONLY])
def test_an_update_without_its_image_makes_its_collection_stale(config: MongoConfig) -> None:
    reading = Reading(config=config)
    reading.batch(
        event(2_000, "update", documentKey={"_id": 1}, fullDocument=None, fullDocumentBeforeChange=None),
        event(2_001, doc=_doc(2), namespace="shop.other"),
        until=token(2_004, 0),
    )
    assert [change[1] for change in _changes(reading)] == ["shop.other"]
    assert {name: found.order for name, found in reading.tables.stale.found.items()} == {"shop.orders": Order(2_000, 1)}
    assert reading.tables.is_image_missing


def test_a_missing_image_of_before_makes_a_collection_stale_and_the_change_is_published() -> None:
    reading = Reading()
    reading.batch(
        event(2_000, "replace", _doc(1), fullDocumentBeforeChange=None),
        event(2_001, "delete", documentKey={"_id": 1}, fullDocumentBeforeChange=None, namespace="shop.other"),
        until=token(2_004, 0),
    )
    assert [change[:2] for change in _changes(reading)] == [("u", "shop.orders"), ("d", "shop.other")]
    assert set(reading.tables.stale.found) == {"shop.orders", "shop.other"}


def test_a_missing_image_stops_a_source_without_copies() -> None:
    config = CONFIG.model_copy(update={"copy_tables": False})
    with pytest.raises(LogGapError, match=r"shop\.orders.*image") as refused:
        Reading(config=config).batch(event(2_000, "update", documentKey={"_id": 1}, fullDocument=None))
    assert (refused.value.source, refused.value.position) == ("s", "0.2000")
    assert "source reset" in (refused.value.hint or "")


def test_an_event_that_is_cut_off_stops_the_source() -> None:
    whole = event(2_000, doc=_doc(1))
    for length in (1, 30, 100, len(whole) - 1):
        with pytest.raises(LogCorruptError) as refused:
            Reading().batch(whole[:length], until=token(2_000))
        assert refused.value.source == "s"


def test_a_kind_that_nobody_knows_stops_the_source() -> None:
    with pytest.raises(LogUnknownError, match="reshardCollection"):
        Reading().batch(event(2_000, "reshardCollection"))


def test_what_is_not_captured_is_passed_over() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1), namespace="other.c"), event(2_001, "create"), event(2_002, "createIndexes"))
    reading.batch()
    assert (reading.found(), reading.mark) == ([], 2_002)


def test_a_collection_that_is_dropped_is_emptied_and_begins_anew() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc=_doc(1)), event(2_001, "drop"), event(2_002, doc={"_id": "now a text"}))
    reading.batch()
    assert _changes(reading) == [
        ("c", "shop.orders", None, (1, 1, None)),
        ("t", "shop.orders", None, None),
        ("c", "shop.orders", None, ("now a text", None)),
    ]


def test_a_collection_that_is_renamed_is_emptied_and_the_other_is_to_be_copied() -> None:
    reading = Reading()
    rename = event(2_002, "rename", to={"db": "shop", "coll": "kept"})
    reading.batch(event(2_000, doc=_doc(1)), event(2_001, doc=_doc(1), namespace="shop.kept"), rename)
    reading.batch()
    assert [change[:2] for change in _changes(reading)[2:]] == [("t", "shop.orders"), ("t", "shop.kept")]
    assert reading.tables.stale.found["shop.kept"].order == Order(2_002, 1)
    notes = reading.tables.notes()
    assert notes["stale/shop.kept"] == b'[2002, 1, "shop.orders was renamed to it"]'
    reading.encoders.notes.update({name: data for name, data in notes.items() if data})
    again = CapturedTables(CONFIG, "s", Shapes(CONFIG), reading.encoders, {})
    assert again.stale.found == reading.tables.stale.found


def test_an_id_of_another_type_makes_the_column_json() -> None:
    reading = Reading()
    reading.batch(event(2_000, doc={"_id": 1}), event(2_001, doc={"_id": "x"}), event(2_002, doc={"_id": 2}))
    reading.batch()
    assert [after for _, _, _, after in _changes(reading)] == [(1, None), ('"x"', None), ("2", None)]


def test_an_id_of_another_type_before_a_change_makes_it_one_of_json() -> None:
    reading = Reading()
    reading.batch(event(2_000, "replace", {"_id": 1}, before={"_id": Decimal128("1")}), until=token(2_004, 0))
    assert _changes(reading) == [("u", "shop.orders", ('{"$numberDecimal":"1"}', None), ("1", None))]


def test_an_id_of_another_type_stops_a_source_without_copies_and_says_where() -> None:
    config = CONFIG.model_copy(update={"copy_tables": False})
    with pytest.raises(CodecError, match="another type") as refused:
        Reading(config=config).batch(event(2_000, doc={"_id": 1}), event(2_001, doc={"_id": "x"}))
    assert (refused.value.source, refused.value.position) == ("s", "0.2001")


# -- stopped anywhere ------------------------------------------------------------------------------------

#: transactions as (cluster time's distance, events); those at distance 0 share the time of the one before
HISTORY = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=12)


@given(HISTORY, st.lists(st.integers(1, 6), max_size=12), st.integers(0, 40))
@settings(max_examples=100, deadline=None)
def test_stopped_anywhere_and_begun_again_it_is_the_same(
    history: list[tuple[int, int]], sizes: list[int], stop: int
) -> None:
    """Cut into any batches, stopped behind any of them: what was marked is not read again, the rest comes whole."""
    events, time = [], START + 1
    for number, (distance, count) in enumerate(history):
        time += distance
        events += [event(time, doc=_doc(number * 10 + n), transaction=number) for n in range(count)]
    end = token(time + 1, 0)
    batches, at = [], 0
    for size in [*sizes, len(events)]:
        batches.append(events[at : at + size])
        at += size

    def read(given: list[list[bytes]], over: tuple[str, int], whole: bool) -> Reading:
        reading = Reading()
        reading.assembler.begin(over[0], ClusterTime(over[1]))
        for batch in given:
            if batch:
                reading.batch(*batch)
        if whole:
            reading.batch(until=end)
        return reading

    everything = read(batches, (token(START, 0), START - 1), True)
    first = read(batches[:stop], (token(START, 0), START - 1), False)
    left = [one for one in events if bson.decode(one)["clusterTime"].inc > first.mark]
    again = read([left], (first.assembler.over_token, first.mark), True)
    published = {order for order, _, _ in first.found()}
    rest = [one for one in again.found() if one[0] not in published]
    assert [*first.found(), *rest] == everything.found()
    assert [count for _, _, count in everything.found()] == [count for _, count in history]


# -- bytes -----------------------------------------------------------------------------------------------


def test_a_reply_is_taken_apart_whatever_the_number_of_its_events() -> None:
    for count in (0, 1, 9, 10, 11, 99, 100, 101, 1_000, 1_001):
        events = [{"_id": {"_data": token(n)}, "n": n} for n in range(count)]
        cursor = {"nextBatch": events, "postBatchResumeToken": {"_data": token(5)}, "id": Int64(7), "ns": "d.$cmd"}
        reply = read_reply(encode({"cursor": cursor, "ok": 1.0, "operationTime": Timestamp(1, 1)}))
        assert (reply.cursor, reply.token) == (7, token(5))
        assert [bson.decode(one)["n"] for one in reply.events] == list(range(count))


def test_a_token_tells_its_cluster_time() -> None:
    assert time_of("82673F82FE000000022B0429296E1404") == 0x673F82FE << 32 | 2
    for wrong in ("", "83673F82FE00000002", "nonsense", "82673F"):
        with pytest.raises(LogUnknownError):
            time_of(wrong)


def test_a_position_holds_the_token_and_how_far_was_read() -> None:
    resume = Resume("82aa", ClusterTime(5), "shop", "82bb")
    assert Resume.unpack(resume.pack(), "s") == resume
    assert b"next_data" not in Resume("82aa", ClusterTime(5), "shop", "82aa").pack()
    with pytest.raises(CodecError):
        Resume.unpack(b"{}", "s")


def test_rules_reach_the_rows() -> None:
    encoders = Encoders()
    encoders.rules = ColumnRules(frozenset({"shop.orders.ssn"}))
    reading = Reading(encoders=encoders)
    reading.batch(event(2_000, doc=_doc(1, ssn="secret", other=None)))
    reading.batch()
    (change,) = _changes(reading)
    assert "secret" not in str(change)
