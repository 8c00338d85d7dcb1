"""Reports of Spark's tasks to the driver: one pickled report per item, as the only column of a job."""

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
    """A random tag that distinguishes the tasks of one attempt, also when Spark runs one of them twice."""
    return uuid.uuid4().hex[:8]


def report_batch(report: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"report": [pickle.dumps(report)]}, _SCHEMA)


def run_tasks(frame: DataFrame, task: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> list[Any]:
    """Runs `task` on each partition and returns the reports of all tasks."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from task(batches)
        forget_zips()

    return [pickle.loads(row.report) for row in frame.mapInArrow(run, "report binary").collect()]


def forget_zips() -> None:
    """Removes zip files from Python's importer cache.

    Spark's jar is on the path of its workers, and each task would begin by reading the list of its files again, which
    takes longer than a small landing. An import that needs the entry creates it again.
    """
    cache = sys.path_importer_cache
    for path in [path for path, finder in cache.items() if isinstance(finder, zipimporter)]:
        del cache[path]
