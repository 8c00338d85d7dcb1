"""What a task holds and writes, with Arrow arrays as the JVM makes them."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pyarrow as pa

from lowwater.codec.avro import change_schema
from lowwater.codec.table import INT64, STRING, Column, TableSchema, array
from lowwater.lake.chain.manifest import Layer
from lowwater.lake.schema.columns import lake_table
from lowwater.lake.store.local import LocalDirectory
from lowwater_spark.landing.files import LakeFiles
from lowwater_spark.landing.reports import forget_zips

TABLE = TableSchema("s", "n", "T", 1, (Column("ID", INT64), Column("TAGS", array(STRING))), ("ID",))


def test_lists_without_items_have_no_offsets_and_are_written(tmp_path: Path) -> None:
    table = lake_table(json.dumps(change_schema(TABLE)))
    # as the JVM sends it: whoever reads an offset there is killed
    nowhere = pa.foreign_buffer(8, 0)
    items = pa.Array.from_buffers(pa.string(), 0, [None, nowhere, nowhere])
    type_ = table.copy_schema.field("TAGS").type
    tags = pa.ListArray.from_arrays(pa.array([0, 0, 0], pa.int32()), items, type=type_)
    rows = pa.Table.from_arrays([pa.array([1, 2], pa.int64()), tags], schema=table.copy_schema)
    with LakeFiles(LocalDirectory(tmp_path), "a", "t", 1 << 20) as files:
        files.add(7, table, rows, Layer.COPY)
        (file,) = files.close()
    assert file.rows == 2


def test_a_worker_reads_the_list_of_a_zip_only_when_it_imports_from_it(tmp_path: Path) -> None:
    path = tmp_path / "some.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("first_of_zip.py", "N = 1")
        archive.writestr("second_of_zip.py", "N = 2")
    sys.path.append(str(path))
    try:
        __import__("first_of_zip")
        assert str(path) in sys.path_importer_cache
        forget_zips()
        assert str(path) not in sys.path_importer_cache
        assert __import__("second_of_zip").N == 2
    finally:
        sys.path.remove(str(path))
        forget_zips()
