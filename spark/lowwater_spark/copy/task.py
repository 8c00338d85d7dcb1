"""In a task: one chunk, from the source's database into files of the lake."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lowwater.errors import LowwaterError
from lowwater.lake.chain.manifest import File, Layer
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.base import open_lake_store
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater.runtime.config import LakeConfig, SourceConfig
from lowwater.runtime.failpoints import fail_point
from lowwater_extractor.encoders import column_rules
from lowwater_extractor.sources import open_source
from lowwater_spark.landing.files import LakeFiles
from lowwater_spark.landing.reports import report_batch, task_tag


@dataclass(frozen=True)
class CopyParams:
    """What all tasks of one attempt are told. Secrets are references: each task resolves them itself."""

    lake: LakeConfig
    attempt: str
    chunks: tuple[Chunk, ...]
    #: schema id → Avro schema of the table version
    avro: dict[int, str]
    #: by name
    sources: dict[str, SourceConfig]


@dataclass
class ChunkReport:
    #: place in the attempt's chunks
    number: int
    files: tuple[File, ...] = ()
    rows: int = 0
    #: why it was not copied
    error: LowwaterError | None = None


def _written(order: Order) -> str:
    return f"{order.major}.{order.minor}"


def copy_chunk(params: CopyParams, number: int) -> ChunkReport:
    chunk = params.chunks[number]
    try:
        files = _copy(params, chunk, f"{number}-{task_tag()}")
    except LowwaterError as error:
        # the other chunks of the attempt land all the same
        return ChunkReport(number, error=error)
    return ChunkReport(number, files, sum(file.rows for file in files))


def _copy(params: CopyParams, chunk: Chunk, tag: str) -> tuple[File, ...]:
    config, avro = params.sources[chunk.source], params.avro[chunk.schema_id]
    table = lake_table(avro)
    source = open_source(chunk.source, config.kind, config.config)
    batches = source.read_chunk(chunk, avro, column_rules(config.columns))
    with LakeFiles(open_lake_store(params.lake), params.attempt, tag, params.lake.file_bytes) as files:
        # a chunk without rows is a file without rows: it has landed, too
        files.add(chunk.schema_id, table, table.copy_schema.empty_table(), Layer.COPY)
        for batch in batches:
            files.add(chunk.schema_id, table, pa.Table.from_batches([batch]), Layer.COPY)
        written = files.close()
    about = {"copy_id": chunk.copy, "chunk": chunk.chunk, "low": _written(chunk.low), "high": _written(chunk.high)}
    fail_point("copy.some_files")
    return tuple(file.model_copy(update=about) for file in written)


def copy_task(params: CopyParams, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            yield report_batch(copy_chunk(params, number))
