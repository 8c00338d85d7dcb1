"""The source kind `simulated_rac`: reads the redo logs of a simulated Oracle RAC database."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import SourceError
from lowwater.records.positions import Order
from lowwater.records.types import Chunk
from lowwater_devkit.simulated_rac.layout import Layout, replace_file
from lowwater_devkit.simulated_rac.view import SimulatedTables, SimulatedView
from lowwater_extractor.api import Check, Encoders, Stream, TableView
from lowwater_extractor.sources.oracle.capture import redo_stream
from lowwater_extractor.sources.oracle.rows.changes import FrameMaker
from lowwater_extractor.sources.oracle.stream import RedoOptions
from lowwater_extractor.spill import MEMORY_BYTES_MAX


class SimulatedRacConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    #: the cluster's directory
    directory: Path
    #: transactions that are open at the start of capture and whose first log is gone: refuse to start, or leave out
    open_at_start: Literal["refuse", "leave_out"] = "refuse"
    #: bytes of rows of open transactions in memory; above this limit rows are spilled to disk
    spill_bytes_max: int = Field(default=MEMORY_BYTES_MAX, ge=0)
    spill_directory: Path | None = None
    #: bytes of log that one poll reads, over all threads
    read_bytes: int = Field(default=4 << 20, ge=1)


class SimulatedRac:
    """One simulated cluster as a source: its logs are read by the same code as those of a real database."""

    kind: ClassVar[str] = "simulated_rac"
    config_model: ClassVar[type[BaseModel]] = SimulatedRacConfig

    def __init__(self, name: str, config: SimulatedRacConfig) -> None:
        self.name = name
        self.config = config
        self._layout = Layout(config.directory)

    def _view(self) -> SimulatedView:
        return SimulatedView(self.name, self._layout)

    def incarnation(self) -> str:
        return self._view().incarnation()

    def discover(self) -> list[TableSchema]:
        return [version.schema for version in self._view().dictionary().last()]

    def check(self) -> list[Check]:
        is_there = self._layout.control.exists()
        where = str(self.config.directory)
        return [Check("directory", is_there, where, "start the cluster: it writes its control file there")]

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        view = self._view()
        tables = SimulatedTables(view, self._layout)
        maker = FrameMaker(self.name, tables.dictionary, encoders)
        options = RedoOptions(
            leave_out=self.config.open_at_start == "leave_out",
            spill_bytes_max=self.config.spill_bytes_max,
            spill_directory=self.config.spill_directory,
            read_bytes=self.config.read_bytes,
        )
        return redo_stream(self.name, view, maker, tables.captured, resumes, marks, options, self._acknowledged)

    def _acknowledged(self, sequences: dict[int, int]) -> None:
        """Logs before these are no longer needed: the cluster may delete them."""
        replace_file(self._layout.acknowledged, json.dumps(sequences).encode())

    def tables_to_copy(self) -> list[TableSchema]:
        """No tables: if capture starts before the cluster's first transaction, all rows are in the log."""
        return []

    def filled_columns(self, table: str) -> set[str]:
        return set()

    def begin_view(self, tables: Sequence[str]) -> TableView:
        raise self._no_copy(", ".join(tables))

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        raise self._no_copy(chunk.table)

    def _no_copy(self, table: str) -> SourceError:
        return SourceError(
            f"simulated_rac has no copy of {table}: the simulation stores only its log, not the rows",
            source=self.name,
            hint="start capture before the cluster's first transaction: then all rows are in the log",
        )
