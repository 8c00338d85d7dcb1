"""A Spark task that copies one chunk from the source's database to files of the lake."""

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
    """Parameters of all tasks of one attempt. Secrets are references: each task resolves them."""

    lake: LakeConfig
    attempt: str
    chunks: tuple[Chunk, ...]
    #: schema id → Avro schema of the table version
    avro: dict[int, str]
    #: source name → its config
    sources: dict[str, SourceConfig]


@dataclass
class ChunkReport:
    #: index in the attempt's chunks
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
        # the other chunks of the attempt still land
        return ChunkReport(number, error=error)
    return ChunkReport(number, files, sum(file.rows for file in files))


def _copy(params: CopyParams, chunk: Chunk, tag: str) -> tuple[File, ...]:
    config, avro = params.sources[chunk.source], params.avro[chunk.schema_id]
    table = lake_table(avro)
    source = open_source(chunk.source, config.kind, config.config)
    batches = source.read_chunk(chunk, avro, column_rules(config.columns))
    with LakeFiles(open_lake_store(params.lake), params.attempt, tag, params.lake.file_bytes) as files:
        # a chunk without rows is written as a file without rows, so that it counts as landed
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
