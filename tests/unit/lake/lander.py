"""Lands rows of one table as the landing does it, with its own attempts, without Kafka and Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT64, STRING, Column, TableSchema
from lowwater.lake.chain.chain import Chain
from lowwater.lake.chain.manifest import File, Landed, Manifest, ManifestKind, TableVersion
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.base import Store
from lowwater.lake.store.local import LocalDirectory
from lowwater.runtime.config import LakeConfig
from lowwater_spark.landing.files import LakeFiles
from lowwater_spark.ledger.ledger import Draft, commit_draft, land_attempt

NAME = "src.bank.t"
_SCHEMA = TableSchema("src", "bank", "t", 1, (Column("id", INT64), Column("v", STRING)), ("id",))
TABLE = lake_table(json.dumps(change_schema(_SCHEMA)))
SCHEMA_ID = 7
_VERSION = TableVersion(table=NAME, version=1, key=("id",), avro=TABLE.avro)


class Lander:
    def __init__(self, root: Path, **config: Any) -> None:
        self.config = LakeConfig(uri=str(root), **config)
        self.store: Store = LocalDirectory(root)
        self.chain = Chain.open(self.store)

    def rows(self, gsn: int, values: dict[int, str | None]) -> pa.Table:
        """None deletes."""
        found = []
        for seq, (id_, value) in enumerate(values.items(), 1):
            cdc = {"_op": "d" if value is None else "c", "_gsn": gsn, "_seq": seq, "_txid": f"t{gsn}", "_thread": 1}
            times = {"_order": {"major": gsn, "minor": 1}, "_commit_ts": gsn, "_ts": gsn}
            found.append({**cdc, **times, "id": id_, "v": value})
        return pa.Table.from_pylist(found, schema=TABLE.stream_schema)

    def write(self, values: dict[int, str | None], attempt: str = "", tag: str = "x") -> tuple[str, list[File]]:
        """The files of an attempt that has not landed."""
        attempt = attempt or land_attempt(self.chain.head.landed.offset)
        with LakeFiles(self.store, attempt, tag, self.config.file_bytes) as files:
            files.add(SCHEMA_ID, TABLE, self.rows(self.chain.head.gsn + 1, values))
            return attempt, files.close()

    def land(self, values: dict[int, str | None], attempt: str = "") -> Manifest:
        """One transaction."""
        self.chain.refresh()
        head = self.chain.head
        attempt, files = self.write(values, attempt)
        draft = Draft(
            ManifestKind.LAND,
            "g",
            attempt,
            tuple(files),
            from_offset=head.landed.offset,
            landed=Landed(topic="t", topic_id="i", offset=head.landed.offset + len(values) + 2),
            gsn=head.gsn + 1,
            transactions=1,
            commit_ts_us=head.gsn + 1,
            clock_us=head.gsn + 1,
            versions=((SCHEMA_ID, _VERSION),),
        )
        return commit_draft(self.chain, draft)

    def land_many(self, count: int) -> dict[int, str]:
        """`count` landings; what is in the table behind them."""
        state: dict[int, str] = {}
        for n in range(count):
            values: dict[int, str | None] = {n: f"v{n}", n // 2: None if n % 3 else f"w{n}"}
            self.land(values)
            for id_, value in values.items():
                if value is None:
                    state.pop(id_, None)
                else:
                    state[id_] = value
        return state
