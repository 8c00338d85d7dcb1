"""A group over one PostgreSQL: the test plans copies and writes the ordered topic, Spark copies and lands."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import yaml

from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from lowwater.kafka.consumer import read_to_end
from lowwater.kafka.producer import TransactionalProducer
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import Manifest, ManifestKind
from lowwater.lake.store.base import open_lake_store
from lowwater.records.positions import Order
from lowwater.records.types import Chunk, Copied, CopiedChunk, Landed
from lowwater.runtime import config
from lowwater.runtime.config import Settings
from lowwater_extractor.encoders import column_rules
from lowwater_extractor.sources.postgres.snapshot.chunks import plan_chunks
from lowwater_fleet.runner import services
from lowwater_fleet.runner.ports import free_port
from lowwater_fleet.runner.services import Service
from lowwater_spark.service import LandService
from tests.integration.copying.tables import CopiedTable, postgres_config
from tests.support.harness import LAND
from tests.support.ordered_topic import OrderedTopic
from tests.support.postgres import Database


class CopiedGroup:
    def __init__(self, directory: Path, bootstrap_servers: str, name: str, database: Database, **source: Any) -> None:
        self.name, self.directory, self.database = name, directory, database
        kind = postgres_config(database, ["*.*"]).model_dump(mode="json", exclude_defaults=True)
        raw = {
            "kafka": {"bootstrap_servers": bootstrap_servers},
            "sources": {name: {"kind": "postgres", "config": kind, **source}},
            "groups": {
                name: {
                    "sources": [name],
                    "lake": {"uri": str(directory / "lake"), "compact_seconds": -1, "grace_hours": 1},
                    "land": {**LAND, "http": {"port": free_port()}},
                }
            },
            "state_directory": str(directory / "state"),
        }
        self.path = directory / f"{name}.yaml"
        self.path.write_text(yaml.safe_dump(raw))
        self.lake = str(directory / "lake")
        self.settings: Settings = config.load(self.path)
        self.topic = OrderedTopic(self.settings, name)
        Admin(self.settings.kafka).ensure(topics.source_topics(name, self.settings.source(name)))
        self._producer = TransactionalProducer(self.settings.kafka, f"lowwater.{name}")
        self._producer.init()
        self._snapshots: list[psycopg.Connection[Any]] = []
        self._started: list[Service] = []
        #: all that were planned
        self.planned: list[Chunk] = []

    def use_lake(self, directory: Path) -> None:
        """From the next start on."""
        raw = yaml.safe_load(self.path.read_text())
        raw["groups"][self.name]["lake"]["uri"] = self.lake = str(directory)
        self.path.write_text(yaml.safe_dump(raw))
        self.settings = config.load(self.path)

    def close(self) -> None:
        self.lose_snapshots()
        for service in self._started:
            service.kill()

    # -- what an extractor would do --------------------------------------------------------------------------

    def table(self, name: str) -> CopiedTable:
        rules = column_rules(self.settings.source(self.name).columns)
        return CopiedTable(self.database, name, rules, source=self.name)

    def plan(
        self, name: str, copy: str, rows_per_chunk: int, replaces: str = "", cannot_read: tuple[int, ...] = ()
    ) -> list[Chunk]:
        """Of the table as it is now; changes that the ordered topic has up to now are in it.

        `cannot_read`: numbers of chunks whose snapshot is gone.
        """
        connection = self.database.connect()
        self._snapshots.append(connection)
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        [(snapshot,)] = connection.execute("SELECT pg_export_snapshot()").fetchall()
        table = self.table(name)
        schema, bare = name.split(".")
        found = plan_chunks(connection, schema, bare, table.table.key, rows_per_chunk, snapshot=snapshot)
        bounds = [replace(c.bounds, snapshot="gone") if n in cannot_read else c.bounds for n, c in enumerate(found, 1)]
        schema_id = self.topic.store.table_id(table.shown, topics.changes(self.name))
        low = Order.mark(1000 + self.topic.gsn)
        chunks = [
            Chunk(self.name, copy, name, number, len(found), schema_id, bounds[number - 1].encode(), low, low,
                  chunk.rows_estimate, replaces)
            for number, chunk in enumerate(found, 1)
        ]  # fmt: skip
        self._producer.begin()
        for chunk in chunks:
            key = self.topic.codec.key(f"{name}/{chunk.chunk}")
            self._producer.produce(topics.chunks(self.name), key, self.topic.codec.encode(chunk), 0)
        self._producer.flush()
        self._producer.commit()
        self.planned += chunks
        return chunks

    def lose_snapshots(self) -> None:
        for connection in self._snapshots:
            connection.close()
        self._snapshots.clear()

    def copied(self, copy: str) -> int:
        """The copy becomes readable; its gsn."""
        chunks = [chunk for chunk in self.planned if chunk.copy == copy]
        of_copy = tuple(CopiedChunk(c.table, c.chunk, c.low, c.high) for c in chunks)
        with self.topic:
            return self.topic.copied(Copied(1, copy, (chunks[0].table,), of_copy))

    # -- Spark -----------------------------------------------------------------------------------------------

    def land(self) -> LandService:
        """All that is there, as `lowwater-spark --once` does it; raises what ended it."""
        service = LandService(self.settings, self.name, once=True)
        service._prepare()
        with contextlib.closing(service._control):
            service._run_session()
        return service

    def start(self, **environment: str) -> Service:
        service = services.lander(self.settings, self.path, self.name, self.directory / "logs")
        if any(other.is_running for other in self._started):
            service.command += ["--http-port", "0"]
        service.start(environment)
        self._started.append(service)
        return service

    def log(self) -> str:
        text = (self.directory / "logs" / f"spark-{self.name}.log").read_text(errors="replace")
        return "\n".join(line[:300] for line in text.splitlines() if not line.startswith("\tat"))[-6000:]

    # -- what came out ---------------------------------------------------------------------------------------

    def chain(self) -> Chain:
        lake = self.settings.group(self.name).lake
        assert lake is not None
        return Chain.open(open_lake_store(lake))

    def manifests(self, kind: ManifestKind) -> list[Manifest]:
        return [manifest for manifest in self.chain().log() if manifest.kind is kind]

    def landed_chunks(self) -> list[tuple[str, int]]:
        """Of all copies' manifests, closed or not; a chunk that landed twice is here twice."""
        found = []
        for manifest in self.manifests(ManifestKind.COPY):
            found += sorted({(file.copy_id, file.chunk) for file in manifest.files})
        return found

    def mirrored_chunks(self) -> list[tuple[str, str, int]]:
        """What an extractor can learn from the ledger topic: table, copy, chunk."""
        found = []
        for message in read_to_end(self.settings.kafka, topics.ledger(self.name))[0]:
            value = message.value() or b""
            if self.topic.codec.record_type(value) is Landed:
                landed = self.topic.codec.decode(value, Landed)
                found += sorted({(chunk.table, chunk.copy, chunk.chunk) for chunk in landed.chunks})
        return found
