"""Connections to a replica set, and the mapping of driver errors to lowwater's."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pymongo
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from pymongo import errors

from lowwater.errors import LogCorruptError, LogGapError, SourceError, SourceLostError
from lowwater.runtime.secrets import resolve
from lowwater_extractor.sources.mongodb.config import MongoConfig

Client = pymongo.MongoClient[Any]
T = TypeVar("T")

#: responses as raw BSON; one level is decoded on access
RAW: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)

#: error codes that the server defines as retryable: it is unreachable, or no longer the primary
_PASSING = {6, 7, 24, 43, 63, 64, 89, 91, 133, 134, 136, 150, 175, 189, 202, 234, 237, 262, 317, 358, 9001, 10107}
_PASSING |= {11600, 11601, 11602, 13388, 13435, 13436}
_UNAUTHORIZED, _NOT_AUTHENTICATED = 13, 18
_TOO_LARGE = 10334
_HISTORY_LOST = {280, 286}

RESET = "`lowwater source reset` starts capture from scratch and copies all collections again"


def connect(config: MongoConfig, source: str) -> Client:
    """Return a client, which finds the primary automatically, also after an election."""
    options: dict[str, Any] = {
        "serverSelectionTimeoutMS": 10_000,
        "connectTimeoutMS": 10_000,
        # the server may search a long part of the oplog before it finds an event; a dead peer is detected by the
        # driver's keepalive
        "socketTimeoutMS": 300_000,
        **{name: resolve(v) if isinstance(v, str) else v for name, v in config.options.items()},
        "appname": f"lowwater {source}",
        "replicaSet": config.replica_set,
        # after an error the session restarts from the position; the driver must not retry on its own
        "retryReads": False,
    }
    if config.user:
        options |= {"username": config.user, "authSource": config.auth_source}
        if config.password:
            options["password"] = resolve(config.password)
    if config.auth_mechanism:
        options["authMechanism"] = config.auth_mechanism
    try:
        with named_errors(source, "connect", config):
            return pymongo.MongoClient(config.hosts, **options)
    except (ValueError, TypeError) as error:
        # the driver's message about an option; it does not contain values of secrets
        raise SourceError(f"connect: {error}", source=source, hint="check the source's `options`") from error


def ask(client: Client, source: str, database: str, command: dict[str, Any], **more: Any) -> dict[str, Any]:
    with named_errors(source, next(iter(command))):
        answer: dict[str, Any] = client[database].command(command, **more)
        return answer


def told(answer: dict[str, Any], source: str, what: str, read: Callable[[dict[str, Any]], T]) -> T:
    """Return `read(answer)`. LogCorruptError: the answer does not contain the expected fields."""
    try:
        return read(answer)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise damaged_answer(error, source, what) from error


@contextmanager
def named_errors(source: str, what: str, config: MongoConfig | None = None) -> Iterator[None]:
    try:
        yield
    except errors.PyMongoError as error:
        raise as_source_error(error, source, what, config) from error
    except (BSONError, struct.error) as error:
        raise damaged_answer(error, source, what) from error


def damaged_answer(error: Exception, source: str, what: str) -> LogCorruptError:
    return LogCorruptError(
        f"{what}: the server's answer is damaged or unexpected ({type(error).__name__}: {error})",
        source=source,
        hint="restart the source; if the error recurs, check the server's log, and proxies in between",
    )


def as_source_error(
    error: errors.PyMongoError, source: str, what: str, config: MongoConfig | None = None
) -> SourceError:  # fmt: skip
    code = error.code if isinstance(error, errors.OperationFailure) else None
    text = f"{what}: {_words(error)}"
    if code in _HISTORY_LOST:
        hint = f"the oplog no longer contains the position of this source: enlarge the oplog, then {RESET}"
        return LogGapError(text, source=source, hint=hint)
    if code == _TOO_LARGE:
        hint = (
            "a change and its images exceed 16 MB: set `before: key`, and resume the source. If that is set, or an "
            "update itself is as large as its document, the document cannot be captured: make it smaller, then "
            f"{RESET}"
        )
        return SourceError(text, source=source, hint=hint)
    if code in (_UNAUTHORIZED, _NOT_AUTHENTICATED):
        return _refused(error, source, text, config)
    is_lost = isinstance(error, errors.ConnectionFailure) or code in _PASSING
    if is_lost or (isinstance(error, errors.OperationFailure) and error.has_error_label("RetryableChangeStreamError")):
        return SourceLostError(text, source=source, hint="retried automatically; does the replica set have a primary?")
    return SourceError(text, source=source, hint="run `lowwater source check`, and see the server's log")


def _refused(error: errors.PyMongoError, source: str, text: str, config: MongoConfig | None) -> SourceError:
    hint = "check user, password and auth_source, and the roles that docs/mongodb.md lists; then resume the source"
    is_login = isinstance(error, errors.OperationFailure) and error.code == _NOT_AUTHENTICATED
    if is_login and config is not None and config.password.startswith("${file:"):
        hint = "the password file is read again at each attempt: write the new password to it"
        return SourceLostError(text, source=source, hint=hint)
    return SourceError(text, source=source, hint=hint)


def _words(error: errors.PyMongoError) -> str:
    """Return the message without the topology that the driver adds, and without documents that the server quotes."""
    if isinstance(error, errors.OperationFailure):
        said = str((error.details or {}).get("errmsg", error))
        return f"{said.partition(' for event:')[0].partition('{')[0].strip()} ({error.code})"
    return str(error).partition(", Timeout:")[0].partition(" (configured timeouts")[0]
