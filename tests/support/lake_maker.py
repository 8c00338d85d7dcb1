"""Writes lakes without Kafka or Spark: what the tests say landed is what is there."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lowwater.codec.avro import change_schema
from lowwater.codec.table import TableSchema
from lowwater.lake.chain.manifest import (
    CopiedTables,
    File,
    Landed,
    Layer,
    Manifest,
    ManifestKind,
    Place,
    SkippedTransaction,
    StaleTables,
    TableVersion,
    digest,
    manifest_path,
)
from lowwater.lake.schema.columns import BEFORE, LakeTable, lake_table
from lowwater.lake.store.base import Store
from lowwater_spark.landing.moved_key_notes import TangleNotes

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Made:
    """One change."""

    schema_id: int
    op: str
    row: Row | None = None
    before: Row | None = None
    unchanged: Sequence[str] = ()


@dataclass(frozen=True)
class MadeTransaction:
    changes: Sequence[Made]
    commit_us: int | None = None
    #: the source's; the commit time without it, or what it was before
    clock_us: int | None = None
    #: as in a position; the gsn without it
    order: tuple[int, int] | None = None


class LakeMaker:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.gsn = 0
        self.n = 0
        self.commit_us = 0
        self.clock_us = 0
        #: as lakes were before: manifests have no clock
        self.has_clock = True
        self.tables: dict[int, LakeTable] = {}
        self._new: dict[int, TableVersion] = {}
        self._previous = ""
        self._files = 0
        self._offset = 0
        #: when manifests are written; their numbers without it
        self.at_us = 0

    def version(self, table: TableSchema) -> int:
        """Its schema id."""
        avro = json.dumps(change_schema(table))
        schema_id = len(self.tables) + 1
        made = lake_table(avro)
        self.tables[schema_id] = made
        self._new[schema_id] = TableVersion(table=made.name, version=made.version, key=made.key, avro=avro)
        return schema_id

    def land(
        self,
        transactions: Iterable[MadeTransaction],
        *,
        files_each: int = 1,
        row_group: int = 1000,
        skipped: Sequence[SkippedTransaction] = (),
        copied: Sequence[CopiedTables] = (),
        stale: Sequence[StaleTables] = (),
        rowless: int = 0,
    ) -> Manifest:
        """One landing. `files_each`: files of each table, whose gsn overlap. `rowless`: gsn without rows at the end."""
        from_gsn, from_offset = self.gsn, self._offset
        rows: dict[int, list[dict[str, Any]]] = {}
        count = 0
        for transaction in transactions:
            count += 1
            self.gsn += 1
            commit_us = self.gsn * 1000 if transaction.commit_us is None else transaction.commit_us
            self.commit_us = max(self.commit_us, commit_us)
            self.clock_us = max(self.clock_us, commit_us if transaction.clock_us is None else transaction.clock_us)
            for seq, change in enumerate(transaction.changes, 1):
                rows.setdefault(change.schema_id, []).append(self._row(transaction, change, seq, commit_us))
        self.gsn += rowless
        self._offset += sum(map(len, rows.values())) + 2 * (count + rowless) + 1
        files = []
        for schema_id, found in rows.items():
            for part in range(files_each):
                if mine := found[part::files_each]:
                    files.append(self._stream_file(schema_id, mine, row_group))
        return self._commit(
            ManifestKind.LAND,
            files,
            from_gsn=from_gsn,
            from_offset=from_offset,
            transactions=count + rowless,
            skipped=tuple(skipped),
            copied=tuple(copied),
            stale=tuple(stale),
        )

    def stale(self, schema_id: int, reason: str) -> int:
        """From here on the table's state is not known; the gsn."""
        name = self.tables[schema_id].name
        said = StaleTables(gsn=self.gsn + 1, source=name.split(".")[0], tables=(name,), reason=reason)
        self.land([], rowless=1, stale=[said])
        return self.gsn

    def land_table(self, schema_id: int, rows: pa.Table) -> Manifest:
        """One landing of rows that are made already, whole transactions behind the last."""
        file = self.write(schema_id, rows, Layer.STREAM)
        from_gsn, from_offset = self.gsn, self._offset
        self.gsn, self._offset = file.gsn_max, from_offset + 2 * rows.num_rows
        self.commit_us = max(self.commit_us, pc.max(rows["_commit_ts"]).cast(pa.int64()).as_py())
        self.clock_us = max(self.clock_us, self.commit_us)
        return self._commit(
            ManifestKind.LAND, [file], from_gsn=from_gsn, from_offset=from_offset, transactions=self.gsn - from_gsn
        )

    def _row(self, transaction: MadeTransaction, change: Made, seq: int, commit_us: int) -> dict[str, Any]:
        major, minor = transaction.order or (self.gsn, 1)
        return {
            "_op": change.op,
            "_gsn": self.gsn,
            "_seq": seq,
            "_txid": f"tx{self.gsn}",
            "_thread": 1,
            "_order": {"major": major, "minor": minor},
            "_commit_ts": commit_us,
            "_ts": commit_us,
            "_unchanged": list(change.unchanged) or None,
            BEFORE: None if change.before is None else dict(change.before),
            **(change.row or {}),
        }

    def _stream_file(self, schema_id: int, rows: list[dict[str, Any]], row_group: int = 1000) -> File:
        table = pa.Table.from_pylist(rows, schema=self.tables[schema_id].stream_schema)
        return self.write(schema_id, table, Layer.STREAM, row_group=row_group)

    def write(self, schema_id: int, rows: pa.Table, layer: Layer, *, row_group: int = 125_000, **more: Any) -> File:
        """A file, not named by a manifest yet."""
        about = self.tables[schema_id]
        buffer = io.BytesIO()
        pq.write_table(rows, buffer, row_group_size=row_group, compression="zstd")
        data = buffer.getvalue()
        self._files += 1
        path = f"{layer.value}/{about.name}/{self._files:06}.parquet"
        self.store.put(path, data)
        if layer is Layer.STREAM and rows.num_rows:
            gsn = rows["_gsn"]
            notes = TangleNotes(about.key)
            notes.add(rows)
            emptied = rows.select(["_gsn", "_seq"]).filter(pc.equal(rows["_op"], "t")).to_pylist()
            more = {
                "gsn_min": pc.min(gsn).as_py(),
                "gsn_max": pc.max(gsn).as_py(),
                "truncates": tuple(Place(gsn=row["_gsn"], seq=row["_seq"]) for row in emptied),
                "unchanged_rows": rows.num_rows - rows["_unchanged"].null_count,
                "tangles": notes.facts(),
                **more,
            }
        return File(
            path=path, table=about.name, layer=layer, schema_id=schema_id, key=about.key, rows=rows.num_rows,
            bytes=len(data), sha256=digest(data), **{"gsn_min": 0, "gsn_max": 0, **more},
        )  # fmt: skip

    def copy(self, schema_id: int, copy_id: str, chunks: Sequence[Sequence[Row]], low: str) -> Manifest:
        """Rows of a copy, one file for each chunk."""
        schema = self.tables[schema_id].copy_schema
        files = [
            self.write(
                schema_id, pa.Table.from_pylist([dict(row) for row in chunk], schema=schema), Layer.COPY,
                copy_id=copy_id, chunk=number, low=low, high=low, gsn_min=self.gsn, gsn_max=self.gsn,
            )
            for number, chunk in enumerate(chunks)
        ]  # fmt: skip
        return self._commit(ManifestKind.COPY, files)

    def copied(self, schema_id: int, copy_id: str, low: str) -> int:
        """The copy becomes readable, at a transaction of its own; its gsn."""
        name = self.tables[schema_id].name
        word = CopiedTables(
            gsn=self.gsn + 1, source=name.split(".")[0], copy_id=copy_id, tables=(name,), lows={name: low}
        )
        self.land([], rowless=1, copied=[word])
        return self.gsn

    def compact(self, files: Sequence[File], removed: Sequence[str] = (), history_from: int = 0) -> Manifest:
        return self._commit(ManifestKind.COMPACT, files, removed=tuple(removed), history_from=history_from)

    def state_file(self, schema_id: int, rows: list[dict[str, Any]], gsn: int, **more: Any) -> File:
        table = pa.Table.from_pylist(rows, schema=self.tables[schema_id].stream_schema)
        return self.write(schema_id, table, Layer.STATE, gsn_min=1, gsn_max=gsn, folded_to=gsn, **more)

    def _commit(self, kind: ManifestKind, files: Sequence[File], **more: Any) -> Manifest:
        self.n += 1
        manifest = Manifest(
            n=self.n, kind=kind, group="g", attempt=f"a{self.n}", at_us=self.at_us or self.n, previous=self._previous,
            landed=Landed(topic="t", topic_id="i", offset=self._offset), gsn=self.gsn, commit_ts_us=self.commit_us,
            clock_us=self.clock_us if self.has_clock else 0,
            files=tuple(files), versions=self._new, **more,
        )  # fmt: skip
        self._new = {}
        data = manifest.encode()
        self.store.create(manifest_path(self.n), data)
        self._previous = digest(data)
        return manifest
