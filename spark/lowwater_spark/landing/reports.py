"""What Spark's tasks tell the driver: one pickled report from each piece of work, as the only column of a job."""

from __future__ import annotations

import pickle
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any
from zipimport import zipimporter

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SCHEMA = pa.schema([("report", pa.binary())])


def task_tag() -> str:
    """Tells the tasks of one attempt apart, also when Spark runs one of them twice."""
    return uuid.uuid4().hex[:8]


def report_batch(report: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [pickle.dumps(report)]}, _SCHEMA)


def run_tasks(frame: DataFrame, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[Any]:
    """The reports of all tasks, once all have ended."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        forget_zips()

    return [pickle.loads(row.report) for row in frame.mapInArrow(run, "report binary").collect()]


def forget_zips() -> None:
    """Spark's own jar is on the path of its workers, and each task begins with reading the list of its files again.

    That takes longer than a small landing. Python makes such an entry anew where an import asks for it.
    """
    cache = sys.path_importer_cache
    for path in [path for path, finder in cache.items() if isinstance(finder, zipimporter)]:
        del cache[path]
