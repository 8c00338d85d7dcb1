"""MongoDB as a kind: documents are compared whole, whichever of the lake's columns they came in."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections import Counter
from decimal import Decimal
from typing import Any

import pyarrow as pa
from bson import json_util
from bson.binary import Binary, UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId
from bson.regex import Regex
from pymongo import errors
from pymongo.write_concern import WriteConcern

from lowwater.lake.schema.columns import TYPE_NOTE, lake_name
from tests.differential.compare import plain, same
from tests.differential.mongodb_steps import COLLECTIONS, MongoSteps, first_documents
from tests.differential.workload import Row, State, Step, TableState
from tests.support.mongodb import MongoDatabase, source_config

_REST = "_rest"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_OPTIONS = json_util.JSONOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_MS, uuid_representation=UuidRepresentation.STANDARD
)


def canonical(value: Any) -> Any:
    """Numbers by their value: whether one had 32 bits, 64, or was a double is not kept (docs/mongodb.md)."""
    if isinstance(value, bool) or value is None:
        return ("bool", value)
    if isinstance(value, Decimal128):
        number = value.to_decimal()
        is_special = not number.is_finite() or (number == 0 and number.is_signed())
        return ("decimal", str(number.normalize())) if is_special else ("number", number.normalize())
    if isinstance(value, float):
        is_special = not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)
        return ("double", repr(value)) if is_special else ("number", Decimal(value).normalize())
    if isinstance(value, (int, Decimal)):
        return ("number", Decimal(value).normalize())
    if isinstance(value, DatetimeMS):
        return ("date", int(value) * 1000)
    if isinstance(value, dt.datetime):
        return ("date", (value - _EPOCH) // dt.timedelta(microseconds=1))
    if isinstance(value, uuid.UUID):
        return ("uuid", str(value))
    if isinstance(value, Binary) and value.subtype == 4:
        return ("uuid", str(value.as_uuid()))
    if isinstance(value, bytes):
        return ("bytes", getattr(value, "subtype", 0), bytes(value))
    if isinstance(value, ObjectId):
        return ("text", str(value))
    if type(value) is str:
        return ("text", value)
    if isinstance(value, list):
        return ("list", *map(canonical, value))
    if isinstance(value, dict):
        return ("fields", *((name, canonical(inner)) for name, inner in value.items()))
    if isinstance(value, Regex):
        return ("regex", value.pattern, int(value.flags))
    # code, timestamps, the least and the greatest key
    return (type(value).__name__, repr(value))


def _document(fields: dict[str, Any]) -> Row:
    """The order of its own fields is not kept."""
    return (frozenset(fields.items()),)


def _of_json(text: str) -> Any:
    return json_util.loads(text, json_options=_OPTIONS)


def _column(table: pa.Table, field: pa.Field) -> list[Any]:
    note = bytes((field.metadata or {}).get(TYPE_NOTE, b""))
    values = plain(table[field.name])
    if pa.types.is_timestamp(field.type):
        return [None if v is None else ("date", v) for v in values]
    if note == b"json":
        return [None if v is None else canonical(_of_json(v)) for v in values]
    if note == b"uuid":
        return [None if v is None else ("uuid", v) for v in values]
    return [None if v is None else canonical(v) for v in values]


def documents_of(table: pa.Table) -> Counter[Row]:
    """Columns and what is left over, put together again."""
    fields = [field for field in table.schema if field.name != lake_name(_REST)]
    columns = [_column(table, field) for field in fields]
    rest = table[lake_name(_REST)].to_pylist() if lake_name(_REST) in table.column_names else [None] * table.num_rows
    own = {lake_name(name): name for name in ("_op", "_gsn", "_seq", "_txid", "_thread", "_order", "_ts", "_before",
                                              "_commit_ts", "_unchanged")}  # fmt: skip
    found: Counter[Row] = Counter()
    for number, more in enumerate(rest):
        document = {own.get(f.name, f.name): column[number] for f, column in zip(fields, columns, strict=True)}
        document = {name: value for name, value in document.items() if value is not None}
        document |= {name: canonical(value) for name, value in (_of_json(more) if more else {}).items()}
        found[_document(document)] += 1
    return found


class Mongo(MongoSteps):
    name = "mongodb"
    source_kind = "mongodb"

    def __init__(self, database: MongoDatabase, extra: MongoDatabase) -> None:
        self.database = database
        self._dbs = [database]
        self._extra = extra
        self.marker = f"{database.name}.marker"
        self._safe = WriteConcern("majority")

    def version(self) -> str:
        return str(self.database.client.server_info()["version"])

    def config(self) -> dict[str, Any]:
        tables = [f"{db.name}.*" for db in self._dbs]
        return source_config(self.database, tables=tables, chunk_rows=40, manage_images=True)

    def grow_config(self) -> None:
        self._dbs = [self.database, self._extra]

    # -- steps -------------------------------------------------------------------------------------------

    def set_up(self) -> None:
        self.database.create("marker", *COLLECTIONS)
        self._extra.create("late")
        self._collection("marker").insert_one({"_id": 1, "n": 0})
        for name, documents in first_documents().items():
            self._collection(name).insert_many(documents)
        self._extra.db["late"].insert_many([{"_id": n, "v": "first"} for n in range(5)])

    def _collection(self, name: str) -> Any:
        db = self._extra if name.startswith("extra:") else self.database
        return db.db.get_collection(name.removeprefix("extra:"), write_concern=self._safe)

    def mark(self, marker: int) -> None:
        self._collection("marker").update_one({"_id": 1}, {"$set": {"n": marker}})

    def marker_of(self, state: TableState, row: Row) -> int:
        return int(dict(row[0])["n"][1])

    def execute(self, step: Step, number: int) -> list[str]:
        if step.is_atomic:
            return self._in_transaction(step, number)
        self.mark(2 * number - 1)
        failed = [error for statement in step.statements if (error := self._try(statement))]
        self.mark(2 * number)
        return failed

    def _in_transaction(self, step: Step, number: int) -> list[str]:
        with self.database.client.start_session() as session:
            session.start_transaction(write_concern=self._safe)
            try:
                for statement in step.statements:
                    self.apply(statement, session)
                marked = {"$set": {"n": 2 * number}}
                self.database.db["marker"].update_one({"_id": 1}, marked, session=session)
                session.commit_transaction()
            except errors.PyMongoError as error:
                if session.in_transaction:
                    session.abort_transaction()
                return [str(error)[:200]]
        return []

    def _try(self, statement: Any) -> str:
        try:
            self.apply(statement, None)
        except errors.PyMongoError as error:
            return str(error)[:200] or type(error).__name__
        return ""

    def apply(self, statement: Any, session: Any) -> None:
        """`(method of the collection, collection, arguments …)`, or `("command", database, document)`."""
        what, name, *arguments = statement
        if what == "command":
            (self._extra if name == "extra" else self.database).db.command(arguments[0])
        elif what == "drop_database":
            self._extra.client.drop_database(self._extra.name)
        elif session is None:
            getattr(self._collection(name), what)(*arguments)
        else:
            getattr(self.database.db[name], what)(*arguments, session=session)

    def end_open(self) -> None:
        pass

    # -- what it holds -----------------------------------------------------------------------------------

    def state(self) -> State:
        found = {}
        for db in self._dbs:
            for about in db.db.list_collections():
                name = about["name"]
                if about["type"] == "collection" and not name.startswith("system."):
                    found[f"{db.name}.{name}"] = self._read(db, name)
        return found

    def _read(self, db: MongoDatabase, name: str) -> TableState:
        options = db.options.with_options(
            datetime_conversion=DatetimeConversion.DATETIME_MS, uuid_representation=UuidRepresentation.STANDARD
        )
        rows: Counter[Row] = Counter()
        for document in db.db.get_collection(name, codec_options=options).find():
            rows[_document({field: canonical(value) for field, value in document.items()})] += 1
        short = f"extra:{name}" if db is self._extra else name
        return TableState(("document",), rows, (same,), short, documents_of)

    def close(self) -> None:
        self._extra.drop()
        self.database.drop()
