"""Settings of the source kind `mongodb`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from lowwater.runtime.secrets import check_reference
from lowwater_extractor.modes import CursorConfig, ModesConfig

#: what is ours to say, or is a setting of its own
_NOT_OPTIONS = {"username", "password", "host", "port", "replicaset", "authsource", "authmechanism", "appname"}


#: what the server makes for $out, mapReduce, convertToCapped and renames between databases, and renames at their end
_TEMPORARY = re.compile(r"tmp\.(agg_out|mr)\.|tmp[A-Za-z0-9]{5}\.(renameCollection$|convertToCapped\.)")


class FieldCursorConfig(CursorConfig):
    """By what a collection is read in the mode `incremental`."""

    secondary: str = Field(default="_id", min_length=1, description="tells documents apart whose primary is equal")

    @model_validator(mode="after")
    def _fits_documents(self) -> Self:
        if self.key:
            raise ValueError("key: a document is named by its _id; take it out")
        if self.primary == self.secondary:
            raise ValueError("primary and secondary are one field: take another secondary, or another primary")
        return self


def _check_options(options: dict[str, Any]) -> dict[str, Any]:
    for name, value in options.items():
        if name.lower() in _NOT_OPTIONS:
            raise ValueError(f"{name} is not an option: it has a setting of its own")
        if isinstance(value, str):
            check_reference(name, value)
    return options


def _check_hosts(hosts: list[str]) -> list[str]:
    if any("@" in host for host in hosts):
        raise ValueError("a host with a user in front of it: write `user` and `password` instead")
    return hosts


class MongoConfig(ModesConfig):
    hosts: Annotated[list[str], AfterValidator(_check_hosts)] = Field(
        min_length=1, description="`host:port` of some members; the others are found by them; or `mongodb+srv://…`"
    )
    replica_set: str = Field(min_length=1, description="the replica set's name")
    user: str = ""
    password: Annotated[str, AfterValidator(lambda v: check_reference("password", v))] = Field(
        default="", description="a reference such as ${env:MONGODB_PASSWORD}"
    )
    auth_source: str = "admin"
    auth_mechanism: str = Field(default="", description="default: the server's own, SCRAM-SHA-256 say")
    #: passed to the driver as they are: tls, tlsCAFile, tlsCertificateKeyFile, readPreference, compressors, …
    options: Annotated[dict[str, str | bool | int], AfterValidator(_check_options)] = Field(default={})
    tables: list[str] = Field(min_length=1, description="`database.collection`, `database.*` or `*.*`")
    cursors: dict[str, FieldCursorConfig] = Field(default={}, description="`database.collection`: its cursor")
    manage_images: bool = Field(
        default=False, description="turn changeStreamPreAndPostImages on where it is off (needs collMod)"
    )
    before: Literal["row", "key"] = Field(
        default="row", description="what a change tells of the document before it: all, or its `_id`"
    )
    ids_as_json: list[str] = Field(
        default=[], description="`database.collection` whose `_id` has several types: its column is JSON"
    )
    columns_max: int = Field(default=500, ge=1, description="of one table; further fields stay in `_rest`")
    sample_documents: int = Field(
        default=1_000, ge=1, description="of a collection that is copied: its columns are known from these at first"
    )
    copy_tables: bool = Field(default=True, description="copy the documents that are older than the log")
    chunk_rows: int = Field(default=500_000, ge=1, description="what a chunk of a copy aims at")
    await_milliseconds: int = Field(default=20, ge=1, description="how long a poll of an idle server waits for news")
    oplog_share_alarm: float = Field(
        default=0.5, gt=0, description="behind by more than this share of the oplog's time: an alarm"
    )
    spill_bytes_max: int = Field(default=64 << 20, ge=0, description="of one open transaction in memory")
    spill_directory: Path | None = None
    batch_documents: int = Field(default=5_000, ge=1, description="how many events one poll reads at most")

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if wrong := [name for name in self.tables if not all(name.partition(".")[::2])]:
            raise ValueError(f"tables: {wrong[0]!r} is not `database.collection`")
        if wrong := [name for name in self.tables if name.startswith("*.") and name != "*.*"]:
            raise ValueError(f"tables: {wrong[0]!r}: `*` stands for all collections, or for all of all databases")
        if self.mode == "incremental" and (wrong := [name for name in self.tables if name.endswith(".*")]):
            raise ValueError(f"tables: {wrong[0]!r}: in the mode incremental collections are named one by one")
        return self

    @property
    def databases(self) -> list[str] | None:
        """Those that are named; None: all."""
        found = list(dict.fromkeys(name.partition(".")[0] for name in self.tables))
        return None if "*" in found else found

    def is_wanted(self, table: str) -> bool:
        database, _, collection = table.partition(".")
        if collection.startswith("system."):
            return False
        if table in self.tables:
            return True
        return (f"{database}.*" in self.tables or "*.*" in self.tables) and not _TEMPORARY.match(collection)
