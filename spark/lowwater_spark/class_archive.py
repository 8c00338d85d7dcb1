"""`python -m lowwater_spark.class_archive`: writes the JVM's class data sharing archive, for faster starts."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lowwater.runtime.class_archive import making
from lowwater.runtime.config import LandConfig
from lowwater_spark.session import ARCHIVE, spark_session


def _same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def make(archive: Path) -> None:
    with making(archive) as options:
        settings = {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.defaultJavaOptions": " ".join(options),
        }
        session = spark_session("class-archive", LandConfig(spark=settings))
        _land(session)
        _end(session)


def _land(session: SparkSession) -> None:
    """Loads the classes of a landing: a stream, batches, Arrow to Python and back, Parquet."""
    with tempfile.TemporaryDirectory() as directory:
        made = f"{directory}/made"
        session.range(100).selectExpr("id", "cast(id AS string) AS text").write.parquet(made)
        read = session.readStream.schema("id bigint, text string").parquet(made)

        def land(batch: DataFrame, _number: int) -> None:
            batch.mapInArrow(_same, "id bigint, text string").collect()

        stream = read.writeStream.foreachBatch(land).option("checkpointLocation", f"{directory}/at")
        stream.trigger(availableNow=True).start().awaitTermination(60)


def _end(session: SparkSession) -> None:
    """Stops the session and waits for its JVM to exit, which is when the archive is written."""
    session.stop()
    gateway = session.sparkContext._gateway
    process = getattr(gateway, "proc", None)
    if gateway is not None and process is not None:
        gateway.shutdown()
        process.stdin.close()
        process.wait(60)


if __name__ == "__main__":
    make(ARCHIVE)
    sys.stdout.write(f"class archive: {ARCHIVE}, {ARCHIVE.stat().st_size >> 20} MB\n")
