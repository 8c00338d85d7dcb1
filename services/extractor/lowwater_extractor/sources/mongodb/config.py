"""Settings of the source kind `mongodb`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.modes import CursorConfig, ModesConfig
from lowwater_extractor.spill import MEMORY_BYTES_MAX

#: driver options that lowwater sets itself, or that have their own setting
_NOT_OPTIONS = {"username", "password", "host", "port", "replicaset", "authsource", "authmechanism", "appname"}


#: collections that the server creates for $out, mapReduce, convertToCapped and renames between databases, and renames
#: when it has finished
_TEMPORARY = re.compile(r"tmp\.(agg_out|mr)\.|tmp[A-Za-z0-9]{5}\.(renameCollection$|convertToCapped\.)")


class FieldCursorConfig(CursorConfig):
    """The cursor fields by which a collection is read in the mode `incremental`."""

    secondary: str = Field(default="_id", min_length=1, description="orders documents whose primary is equal")

    @model_validator(mode="after")
    def _fits_documents(self) -> Self:
        if self.key:
            raise ValueError("key: a document is identified by its _id; remove this setting")
        if self.primary == self.secondary:
            raise ValueError("primary and secondary are the same field: use another secondary or another primary")
        return self


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name.lower() in _NOT_OPTIONS:
            raise ValueError(f"{name} cannot be set in options: it has its own setting")
        if isinstance(value, str):
            check_reference(name, value)
    return options


def _check_hosts(hosts: list[str]) -> list[str]:
    if any("@" in host for host in hosts):
        raise ValueError("a host must not contain a user: set `user` and `password` instead")
    return hosts


class MongoConfig(ModesConfig):
    hosts: Annotated[list[str], AfterValidator(_check_hosts)] = Field(
        min_length=1, description="`host:port` of some members, by which the others are found; or `mongodb+srv://…`"
    )
    replica_set: str = Field(min_length=1, description="the replica set's name")
    user: str = ""
    password: Annotated[str, AfterValidator(lambda v: check_reference("password", v))] = Field(
        default="", description="a reference such as ${env:MONGODB_PASSWORD}"
    )
    auth_source: str = "admin"
    auth_mechanism: str = Field(default="", description="default: the server's, for example SCRAM-SHA-256")
    #: passed to the driver unchanged: tls, tlsCAFile, tlsCertificateKeyFile, readPreference, compressors, …
    options: Annotated[dict[str, str | bool | int], AfterValidator(_check_options)] = Field(default={})
    tables: list[str] = Field(min_length=1, description="`database.collection`, `database.*` or `*.*`")
    cursors: dict[str, FieldCursorConfig] = Field(default={}, description="`database.collection`: its cursor")
    manage_images: bool = Field(
        default=False, description="turn changeStreamPreAndPostImages on where it is off (needs collMod)"
    )
    before: Literal["row", "key"] = Field(
        default="row", description="the document before a change: whole, or only its `_id`"
    )
    ids_as_json: list[str] = Field(
        default=[], description="`database.collection` whose `_id` has several types: the column `_id` is JSON"
    )
    columns_max: int = Field(default=500, ge=1, description="maximum columns of a table; further fields are in `_rest`")
    sample_documents: int = Field(
        default=1_000, ge=1, description="documents sampled before a copy, to find the first columns of a collection"
    )
    copy_tables: bool = Field(default=True, description="copy documents that are older than the log")
    chunk_rows: int = Field(default=500_000, ge=1, description="target number of documents of a chunk of a copy")
    await_milliseconds: int = Field(default=20, ge=1, description="how long a poll of an idle server waits for events")
    oplog_share_alarm: float = Field(
        default=0.5, gt=0, description="alarm if the lag is more than this share of the oplog's time range"
    )
    spill_bytes_max: int = Field(default=MEMORY_BYTES_MAX, ge=0, description="bytes of an open transaction in memory")
    spill_directory: Path | None = None
    batch_documents: int = Field(default=5_000, ge=1, description="maximum number of events of one poll")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if wrong := [name for name in self.tables if not all(name.partition(".")[::2])]:
            raise ValueError(f"tables: {wrong[0]!r} is not `database.collection`")
        if wrong := [name for name in self.tables if name.startswith("*.") and name != "*.*"]:
            raise ValueError(f"tables: {wrong[0]!r}: use `database.*` for all collections, `*.*` for all databases")
        if self.mode == "incremental" and (wrong := [name for name in self.tables if name.endswith(".*")]):
            raise ValueError(f"tables: {wrong[0]!r}: in the mode incremental each collection must be named")
        return self

    @property
    def databases(self) -> list[str] | None:
        """The configured databases; None: all."""
        found = list(dict.fromkeys(name.partition(".")[0] for name in self.tables))
        return None if "*" in found else found

    def is_wanted(self, table: str) -> bool:
        database, _, collection = table.partition(".")
        if collection.startswith("system."):
            return False
        if table in self.tables:
            return True
        return (f"{database}.*" in self.tables or "*.*" in self.tables) and not _TEMPORARY.match(collection)
