"""What is done to a MongoDB: documents of any shape, transactions, collections that come, go and change names."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from typing import Any

from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp

from tests.differential.workload import Kind, State, Step, makes
from tests.support.mongodb import IMAGES

ODD = 'we"ird.Tä ble'
COLLECTIONS = ("plain", "nested", "objects", "texts", ODD, "bulk", "uuids")
FIELDS = ("a", "b", "c", "_gsn", "_rest", "x.y", "$dollar", "é", "", "_op", "A", "a b")


def first_documents() -> dict[str, list[dict[str, Any]]]:
    return {
        "plain": [{"_id": n, "a": n, "b": f"first {n}"} for n in range(50)],
        "nested": [{"_id": n, "o": {"x": n, "y": [1, 2.0, None]}} for n in range(10)],
        "texts": [{"_id": f"t{n}", "v": n} for n in range(10)],
    }


def value(rng: random.Random, depth: int = 0) -> Any:
    simple = [
        rng.randrange(100), -1, 2147483647, Int64(1 << 53), Int64((1 << 63) - 1), Int64(-(1 << 63)), 0.1, -0.0, 1e300,
        float("nan"), float("inf"), "text", "", "é€𝄞", "x" * 3000, None, True, False,
        dt.datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC),
        Decimal128("1.10"), Decimal128("NaN"), Decimal128("-0"), Decimal128("1E+6000"), Decimal128("1E-18"),
        Binary(b"\x00\xff"), Binary(b"", 0), Binary(b"abc", 5),
        Binary.from_uuid(uuid.UUID(int=7)), ObjectId("65" * 12),
        Regex("^a.*", "i"), Code("f()"), Timestamp(5, 6), MinKey(), MaxKey(),
    ]  # fmt: skip
    if depth < 2 and rng.random() < 0.25:
        some = [value(rng, depth + 1) for _ in range(rng.randrange(4))]
        return some if rng.random() < 0.5 else dict(zip("xyzw", some, strict=False))
    return rng.choice(simple)


class MongoSteps(Kind):
    database: Any

    def collection(self, rng: random.Random, state: State) -> str:
        found: str = state[rng.choice([name for name in sorted(state) if name != self.marker])].about
        return found

    def key(self, rng: random.Random, collection: str) -> Any:
        if collection == "objects":
            return ObjectId(f"{rng.randrange(40):024x}")
        if collection == "uuids":
            return Binary.from_uuid(uuid.UUID(int=rng.randrange(40)))
        if collection in ("texts", ODD):
            return f"t{rng.randrange(40)}"
        return rng.choice([rng.randrange(60), Int64(rng.randrange(60))])

    def document(self, rng: random.Random, collection: str) -> dict[str, Any]:
        names = [name for name in rng.sample(FIELDS, rng.randrange(5)) if name != "$dollar"]
        return {"_id": self.key(rng, collection), **{name: value(rng) for name in names}}

    def writes(self, rng: random.Random, state: State, many: int) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = []
        for _ in range(many):
            name = self.collection(rng, state)
            one = {"_id": self.key(rng, name)}
            field = rng.choice(["a", "b", "c", "é", "_gsn", "_op", "A", "o.x", "a.0"])
            change: dict[str, Any] = rng.choice([
                {"$set": {field: value(rng)}}, {"$unset": {field: ""}},
                {"$inc": {field: rng.choice([1, 1.5, Int64(7)])}},
                {"$push": {field: value(rng)}}, {"$rename": {"a": "c"}}, {"$set": {field: None}}, {"$mul": {field: 2}},
            ])  # fmt: skip
            some = rng.choice([{}, {"_id": {"$gt": one["_id"]}}, {"a": {"$exists": True}}])
            documents = [self.document(rng, name) for _ in range(rng.choice([1, 2, 5]))]
            replacement = {k: v for k, v in documents[0].items() if k != "_id"}
            found.append(rng.choice([
                ("insert_one", name, documents[0]), ("insert_one", name, documents[0]),
                ("insert_many", name, list({str(d["_id"]): d for d in documents}.values())),
                ("update_one", name, one, change), ("update_one", name, one, change),
                ("update_one", name, one, change, True), ("update_many", name, some, change),
                ("replace_one", name, one, replacement, rng.random() < 0.5), ("delete_one", name, one),
                ("delete_many", name, {"_id": {"$gte": one["_id"]}}), ("find_one_and_delete", name, one),
                ("update_one", name, one, [{"$set": {"b": {"$concat": ["x", {"$toString": "$_id"}]}}}]),
            ]))  # fmt: skip
        return found

    @makes(10)
    def writes_alone(self, rng: random.Random, state: State) -> Step:
        return Step("writes", tuple(self.writes(rng, state, rng.choice([1, 2, 5]))), is_atomic=False)

    @makes(10)
    def transaction(self, rng: random.Random, state: State) -> Step:
        inner = {name: table for name, table in state.items() if not table.about.startswith("extra:")}
        return Step("transaction", tuple(self.writes(rng, inner, rng.choice([1, 2, 3, 5]))))

    @makes(3)
    def moved_keys(self, rng: random.Random, state: State) -> Step:
        """An _id cannot change: the document goes and comes again under another, and another takes its place."""
        one, other = rng.sample(range(60), 2)
        return Step("moved keys", (
            ("delete_one", "plain", {"_id": one}), ("delete_one", "plain", {"_id": other}),
            ("insert_one", "plain", {"_id": other, "a": one}), ("insert_one", "plain", {"_id": one, "a": other}),
            ("delete_one", "plain", {"_id": one}), ("insert_one", "plain", {"_id": one, "b": "again"}),
        ))  # fmt: skip

    @makes(0.7)
    def large(self, rng: random.Random, state: State) -> Step | None:
        if f"{self.database.name}.bulk" not in state:
            return None
        first = rng.randrange(5000)
        documents = [{"_id": n, "v": "x" * (n % 50)} for n in range(first, first + rng.choice([300, 1500]))]
        return Step("large transaction", (
            ("delete_many", "bulk", {"_id": {"$gte": first}}), ("insert_many", "bulk", documents),
            ("update_many", "bulk", {"_id": {"$mod": [3, 1]}}, {"$set": {"w": rng.randrange(99)}}),
            ("delete_many", "bulk", {"_id": {"$mod": [2, rng.randrange(2)]}}),
        ))  # fmt: skip

    # -- collections -------------------------------------------------------------------------------------

    @makes(1)
    def drop(self, rng: random.Random, state: State) -> Step:
        name = self.collection(rng, state)
        create = {"create": name.removeprefix("extra:"), **IMAGES}
        again = [("command", "extra" if name.startswith("extra:") else "", create),
                 ("insert_one", name, self.document(rng, name))]  # fmt: skip
        return Step("drop collection", (("drop", name), *(again if rng.random() < 0.8 else [])), is_atomic=False)

    @makes(1)
    def create(self, rng: random.Random, state: State) -> Step:
        name = rng.choice([*COLLECTIONS, "made1", "made.2", "_gsn"])
        make = {"create": name, **IMAGES}
        return Step("create collection", (("command", "", make), ("insert_one", name, self.document(rng, name))),
                    is_atomic=False)  # fmt: skip

    @makes(0.7)
    def rename(self, rng: random.Random, state: State) -> Step:
        one, other = self.collection(rng, state), self.collection(rng, state)
        if one.startswith("extra:") or other.startswith("extra:") or one == other:
            one, other = "plain", "made1"
        swap = (("rename", one, "swapped"), ("rename", other, one), ("rename", "swapped", other))
        return Step("rename collection", rng.choice([swap, (("rename", one, "made1"),)]), is_atomic=False)

    @makes(0.3)
    def out(self, rng: random.Random, state: State) -> Step:
        """An aggregation that replaces a collection as a whole, or merges into it."""
        end = rng.choice([{"$out": "made1"}, {"$merge": {"into": "plain", "whenMatched": "replace"}}])
        pipeline = [{"$match": {}}, {"$addFields": {"via": "aggregate"}}, end]
        command = {"aggregate": "plain", "pipeline": pipeline, "cursor": {}}
        return Step("aggregate into", (("command", "", command),), is_atomic=False)

    @makes(0.2)
    def without_images(self, rng: random.Random, state: State) -> Step:
        name = f"implicit{rng.randrange(3)}"
        off = {"collMod": "plain", "changeStreamPreAndPostImages": {"enabled": False}}
        on = {"collMod": "plain", **IMAGES}
        changed: tuple[Any, ...] = (("update_many", "plain", {}, {"$inc": {"n": 1}}), ("delete_one", "plain", {}),
                   ("replace_one", "plain", {}, {"a": "without an image"}))  # fmt: skip
        how = rng.choice([
            (("insert_one", name, {"_id": 1}), ("update_one", name, {"_id": 1}, {"$set": {"a": 1}})),
            (("command", "", off), *changed),
            (("command", "", off), *changed, ("command", "", on)),
        ])  # fmt: skip
        return Step("without images", how, is_atomic=False)

    @makes(0.15)
    def mixed_ids(self, rng: random.Random, state: State) -> Step:
        odd = rng.choice(["text", 1.5, {"x": 1}, None, True])
        name = self.collection(rng, state)
        return Step("ids of several types", (("insert_one", name, {"_id": odd}),), is_atomic=False)

    @makes(0.2)
    def database_again(self, rng: random.Random, state: State) -> Step:
        return Step("drop database", (
            ("drop_database", ""), ("command", "extra", {"create": "late", **IMAGES}),
            ("insert_one", "extra:late", {"_id": 9, "v": "again"}),
        ), is_atomic=False)  # fmt: skip
