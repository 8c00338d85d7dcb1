"""What Spark's tasks tell the driver: one pickled report from each piece of work, as the only column of a job."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

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
    return [pickle.loads(row.report) for row in frame.mapInArrow(task, "report binary").collect()]
