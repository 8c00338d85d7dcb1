"""The change stream's cursor: opened, asked for more, closed. Everything it says is bytes."""

from __future__ import annotations

from typing import Any

from pymongo import errors

from lowwater_extractor.sources.mongodb.config import MongoConfig
from lowwater_extractor.sources.mongodb.connect import RAW, Client, named_errors
from lowwater_extractor.sources.mongodb.position import Resume, timestamp
from lowwater_extractor.sources.mongodb.wire.events import Reply, read_reply

#: of events that are about a database, or about the stream itself
_ABOUT_DATABASES = ["dropDatabase", "invalidate"]


def pipeline_of(config: MongoConfig, start: dict[str, Any]) -> list[dict[str, Any]]:
    """One stream for all collections: a transaction that comes by two streams would be two."""
    # stored images, or null: with `required` the server would end the stream at the first one that is missing, and no
    # stream could be begun behind it
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
    """The one database whose stream has everything; None: that of all databases."""
    databases = config.databases
    return databases[0] if databases is not None and len(databases) == 1 else None


def _wanted(config: MongoConfig) -> list[dict[str, Any]]:
    """Also what gets a wanted name by being renamed. None: everything."""
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
    """By the token, so that the server sees whether it is a place of its own log. One of another database's stream it
    may not find, though: then by the time."""
    if start is None:
        return {}
    if start.database == database:
        return {"startAfter": {"_data": start.token}}
    return {"startAtOperationTime": timestamp(start.time + 1)}


class ChangeCursor:
    """`start`: a position behind which it begins; None: with what comes from now on."""

    def __init__(self, client: Client, source: str, config: MongoConfig, start: Resume | None) -> None:
        self._source = source
        self._batch = config.batch_documents
        self._database = client[database_of(config) or "admin"]
        # all questions about one cursor are of one session
        self._session = client.start_session(causal_consistency=False)
        begin = _begin(start, database_of(config) or "")
        command = {"aggregate": 1, "pipeline": pipeline_of(config, begin), "cursor": {}}
        # afterwards the cursor is at one server, and so are the questions: a new primary does not know it
        first = self._ask({**command, "readConcern": {"level": "majority"}})
        #: until it is taken
        self.first: Reply | None = first
        self._cursor = first.cursor

    def _ask(self, command: dict[str, Any]) -> Reply:
        with named_errors(self._source, "change stream"):
            answer = self._database.command(command, session=self._session, codec_options=RAW)
            return read_reply(bytes(answer.raw))

    @property
    def is_closed(self) -> bool:
        """By the server, behind an invalidate."""
        return self._cursor == 0

    def more(self, await_milliseconds: int) -> Reply:
        """What has come; waits that long if there is nothing."""
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
                # a server that is gone has no cursor, and one that forgets us closes it by itself
                self._cursor = 0
        self._session.end_session()
