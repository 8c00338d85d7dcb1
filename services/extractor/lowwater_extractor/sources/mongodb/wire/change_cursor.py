"""The cursor of a change stream: open, get more, close. Events are raw BSON."""

from __future__ import annotations

from typing import Any

from pymongo import errors

from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import RAW, Client, named_errors
from lowwater_extractor.sources.mongodb.position import Resume, timestamp, token_document
from lowwater_extractor.sources.mongodb.wire.events import Reply, read_reply

#: kinds of events that concern a database, or the stream itself
_ABOUT_DATABASES = ["dropDatabase", "invalidate"]


def pipeline_of(config: MongoConfig, start: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the pipeline of one stream for all collections: two streams would split transactions."""
    # stored images, or null: with `required` the server would end the stream at the first missing image, and no stream
    # could be opened after it
    stream: dict[str, Any] = {
        "fullDocument": "whenAvailable",
        "fullDocumentBeforeChange": "whenAvailable" if config.before == "row" else "off",
        "showExpandedEvents": True,
        **start,
    }
    if database_of(config) is None:
        stream["allChangesForCluster"] = True
    wanted = _wanted(config)
    match = [{"$match": {"$or": [*wanted, {"operationType": {"$in": _ABOUT_DATABASES}}]}}] if wanted else []
    return [{"$changeStream": stream}, *match]


def database_of(config: MongoConfig) -> str | None:
    """Return the database whose stream contains all configured collections; None: the stream of all databases."""
    databases = config.databases
    return databases[0] if databases is not None and len(databases) == 1 else None


def _wanted(config: MongoConfig) -> list[dict[str, Any]]:
    """Return the filters for configured collections, and for renames to them. Empty: all events."""
    if "*.*" in config.tables:
        return []
    found: list[dict[str, Any]] = []
    for name in config.tables:
        database, _, collection = name.partition(".")
        for where in ("ns", "to"):
            one: dict[str, Any] = {f"{where}.db": database}
            found.append(one if collection == "*" else {**one, f"{where}.coll": collection})
    return found


def _begin(start: Resume | None, database: str) -> dict[str, Any]:
    """Start after the token, so that the server checks that it is in its log. A token of another database's stream may
    not be found, so the stream then starts at the time."""
    if start is None:
        return {}
    if start.database == database:
        return {"startAfter": token_document(start.token)}
    return {"startAtOperationTime": timestamp(start.time + 1)}


class ChangeCursor:
    """`start`: the position after which the stream begins; None: now."""

    def __init__(self, client: Client, source: str, config: MongoConfig, start: Resume | None) -> None:
        self._source = source
        self._batch = config.batch_documents
        self._database = client[database_of(config) or "admin"]
        # all commands of a cursor must be in one session
        self._session = client.start_session(causal_consistency=False)
        begin = _begin(start, database_of(config) or "")
        command = {"aggregate": 1, "pipeline": pipeline_of(config, begin), "cursor": {}}
        # the cursor then exists on one server, to which the commands are pinned: a new primary does not know it
        first = self._ask({**command, "readConcern": {"level": "majority"}})
        #: the first batch, until the stream has processed it
        self.first: Reply | None = first
        self._cursor = first.cursor

    def _ask(self, command: dict[str, Any]) -> Reply:
        with named_errors(self._source, "change stream"):
            answer = self._database.command(command, session=self._session, codec_options=RAW)
            return read_reply(bytes(answer.raw))

    @property
    def is_closed(self) -> bool:
        """Whether the server has closed the cursor, after an invalidate event."""
        return self._cursor == 0

    def more(self, await_milliseconds: int) -> Reply:
        """Return the next events; if there are none, waits up to `await_milliseconds`."""
        command = {"getMore": self._cursor, "collection": "$cmd.aggregate"}
        reply = self._ask({**command, "batchSize": self._batch, "maxTimeMS": await_milliseconds})
        self._cursor = reply.cursor
        return reply

    def close(self) -> None:
        if not self.is_closed:
            try:
                self._database.command(
                    {"killCursors": "$cmd.aggregate", "cursors": [self._cursor]}, session=self._session
                )
            except errors.PyMongoError:
                # an unreachable server closes the cursor itself when the session expires
                self._cursor = 0
        self._session.end_session()
