"""Schema ids: assigned by a schema registry if one is configured, else derived from fingerprints and stored in a topic.

Without a registry the id of a schema is its fingerprint, or the next free number if another schema has that id: the
entry is written and read back, and the first write of an id is valid permanently.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import KafkaError, Producer

from lowwater.codec import generic
from lowwater.codec.avro import change_schema
from lowwater.codec.table import TableSchema
from lowwater.codec.varint import long, read_long
from lowwater.errors import ConfigError, SchemaError
from lowwater.kafka import topics
from lowwater.kafka.client import as_bus_error, client_settings
from lowwater.kafka.consumer import read_to_end
from lowwater.records.codec import KEY_NAME, RecordCodec, record_schemas
from lowwater.records.ids import SchemaId
from lowwater.records.types import SchemaEntry
from lowwater.records.wire import HEADER_SIZE, header
from lowwater.runtime.config import KafkaConfig, RegistryConfig, Settings
from lowwater.runtime.secrets import resolve

_ENTRY_TEXT = record_schemas()[SchemaEntry.__name__]
_ID_TEXT = '"long"'


def fingerprint(schema: str) -> SchemaId:
    """A positive 31-bit number, because registries and clients treat ids as signed."""
    return SchemaId(int.from_bytes(hashlib.sha256(schema.encode()).digest()[:4], "big") & 0x7FFFFFFF)


class SchemaStore:
    """All schemas of this installation, by id and by text."""

    def __init__(
        self, kafka: KafkaConfig, registry: RegistryConfig | None = None, tick: Callable[[], None] | None = None
    ) -> None:
        self._kafka = kafka
        #: called while waiting for Kafka
        self._tick = tick
        self._registry = _Registry(registry) if registry else None
        self._by_id: dict[SchemaId, SchemaEntry] = {}
        self._by_text: dict[str, SchemaId] = {}
        self._by_table: dict[str, list[SchemaEntry]] = {}
        self._next_offset = 0
        self.refresh()

    def refresh(self) -> None:
        messages, self._next_offset = read_to_end(self._kafka, topics.SCHEMAS, start=self._next_offset, tick=self._tick)
        for message in messages:
            key, value = message.key() or b"", message.value() or b""
            schema_id = SchemaId(read_long(key, HEADER_SIZE)[0])
            entry: SchemaEntry = generic.decode(value[HEADER_SIZE:], SchemaEntry)
            if schema_id not in self._by_id:
                self._by_id[schema_id] = entry
                self._by_text.setdefault(entry.schema, schema_id)
                if entry.table:
                    self._by_table.setdefault(entry.table, []).append(entry)

    def entries(self) -> dict[SchemaId, SchemaEntry]:
        return dict(self._by_id)

    def entry(self, schema_id: SchemaId) -> SchemaEntry:
        if schema_id not in self._by_id:
            self.refresh()
        if schema_id not in self._by_id:
            raise SchemaError(
                f"schema {schema_id} is not known here",
                hint="was the topic lowwater.schemas deleted or truncated?",
            )
        return self._by_id[schema_id]

    def versions(self, table: str) -> list[SchemaEntry]:
        """All versions of tables of this name, of all sources."""
        return self._by_table.get(table, [])

    def schema_text(self, schema_id: int) -> str:
        return self.entry(SchemaId(schema_id)).schema

    def id_of(self, entry: SchemaEntry) -> SchemaId:
        """The id of the schema. A new id is durable when this returns."""
        known = self._by_text.get(entry.schema)
        if known is not None:
            return known
        self.refresh()
        wanted = self._registry.register(entry) if self._registry else fingerprint(entry.schema)
        while True:
            taken = self._by_id.get(wanted)
            if taken is None:
                self._write({wanted: entry})
                self.refresh()
                taken = self._by_id[wanted]
            if taken.schema == entry.schema:
                return wanted
            if self._registry:
                raise SchemaError(
                    f"the registry gave id {wanted} to two schemas",
                    hint="was lowwater moved to another registry?",
                )
            wanted = SchemaId((wanted + 1) & 0x7FFFFFFF)

    def _write(self, entries: dict[SchemaId, SchemaEntry]) -> None:
        producer = Producer({"enable.idempotence": True, "acks": "all", **client_settings(self._kafka)})
        failed: list[KafkaError | None] = []
        # this topic maps ids to schemas, so the ids of its own two schemas are fixed fingerprints
        for schema_id, entry in entries.items():
            key = header(fingerprint(_ID_TEXT)) + long(schema_id)
            value = header(fingerprint(_ENTRY_TEXT)) + generic.encode(entry)
            producer.produce(topics.SCHEMAS, key=key, value=value, on_delivery=lambda error, _: failed.append(error))
        producer.flush()
        if error := next(filter(None, failed), None):
            raise as_bus_error(error, f"write to {topics.SCHEMAS}")

    def table_id(self, table: TableSchema, topic: str) -> SchemaId:
        return self.id_of(_table_entry(table, topic))

    def announce(self, tables: Iterable[TableSchema], topic: str) -> None:
        """Registers schemas whose ids will be requested next, in one write instead of one round trip each."""
        self._announce([_table_entry(table, topic) for table in tables])

    def _announce(self, entries: Iterable[SchemaEntry]) -> None:
        if self._registry:
            return
        missing = [entry for entry in entries if entry.schema not in self._by_text]
        if missing:
            # a fingerprint that another schema has is resolved by `id_of`
            self._write({fingerprint(entry.schema): entry for entry in missing})
            self.refresh()

    def record_codec(self) -> RecordCodec:
        """The codec of lowwater's own records, with their ids in this installation."""
        entries = {}
        for name, text in {**record_schemas(), "SchemaId": _ID_TEXT}.items():
            subject = f"{topics.PREFIX}-{'key' if name == KEY_NAME else f'lowwater.{name}'}"
            entries[name] = SchemaEntry(text, subject)
        self._announce(entries.values())
        return RecordCodec({name: self.id_of(entry) for name, entry in entries.items()})


def _table_entry(table: TableSchema, topic: str) -> SchemaEntry:
    text = json.dumps(change_schema(table), separators=(",", ":"))
    name = json.loads(text)
    subject = f"{topic}-{name['namespace']}.{name['name']}"
    return SchemaEntry(text, subject, table.full_name, table.version, table.key)


class _Registry:
    """A client of the schema registry. Registrations are rare, so each opens and closes its own connection."""

    def __init__(self, config: RegistryConfig) -> None:
        self._settings: dict[str, Any] = {"url": config.url}
        if config.username:
            self._settings["basic.auth.user.info"] = f"{config.username}:{resolve(config.password)}"

    def register(self, entry: SchemaEntry) -> SchemaId:
        try:
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
        except ImportError as error:
            raise ConfigError(
                "a schema registry is configured, but its client is not installed",
                hint="pip install 'lowwater[registry]'",
            ) from error
        try:
            with SchemaRegistryClient(self._settings) as client:
                return SchemaId(client.register_schema(entry.subject, Schema(entry.schema, "AVRO")))
        except SchemaRegistryError as error:
            raise SchemaError(
                f"the schema registry refused {entry.subject}: {error}",
                hint="each table version is a schema of its own: set the subject's compatibility to NONE",
            ) from error


def open_store(settings: Settings, tick: Callable[[], None] | None = None) -> SchemaStore:
    return SchemaStore(settings.kafka, settings.schema_registry, tick)
