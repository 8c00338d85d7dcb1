"""The source kind `simulated_rac`: reads the log files of a simulated Oracle RAC database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from lowwater.codec.rules import ColumnRules
from lowwater.codec.table import TableSchema
from lowwater.errors import SourceError
from lowwater.positions import Order
from lowwater.records import Chunk
from lowwater_extractor.source import Check, Encoders, Stream, TableView
from lowwater_extractor.sources.simulated_rac.assembly import Assembler
from lowwater_extractor.sources.simulated_rac.changes import FrameMaker
from lowwater_extractor.sources.simulated_rac.log import Layout, read_control
from lowwater_extractor.sources.simulated_rac.resume import Resume, fresh, resumed
from lowwater_extractor.sources.simulated_rac.rows import table_from_json
from lowwater_extractor.sources.simulated_rac.stream import SimulatedRacStream
from lowwater_extractor.spill import SpillSpace


class SimulatedRacConfig(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    #: where the cluster writes its logs
    directory: Path
    #: also publish system transactions; their SCNs count either way
    include_system: bool = False
    #: what to do about transactions that are open at the start of capture, with the log of their begin gone
    open_at_start: Literal["refuse", "leave_out"] = "refuse"
    #: rows of open transactions in memory; past this they go to disk
    spill_bytes_max: int = Field(default=64 << 20, ge=0)
    spill_directory: Path | None = None
    #: how much of the logs one poll reads, over all threads
    read_bytes: int = Field(default=4 << 20, ge=1)


class SimulatedRac:
    """One simulated cluster as a source."""

    kind: ClassVar[str] = "simulated_rac"
    config_model: ClassVar[type[BaseModel]] = SimulatedRacConfig

    def __init__(self, name: str, config: SimulatedRacConfig) -> None:
        self.name = name
        self.config = config
        self._layout = Layout(config.directory)

    def incarnation(self) -> str:
        return read_control(self._layout).incarnation

    def discover(self) -> list[TableSchema]:
        return [table_from_json(self.name, raw) for raw in read_control(self._layout).tables.values()]

    def check(self) -> list[Check]:
        is_there = self._layout.control.exists()
        where = str(self.config.directory)
        return [Check("directory", is_there, where, "start the cluster: it writes its control file there first")]

    def stream(self, resumes: Mapping[int, bytes], marks: Mapping[int, Order], encoders: Encoders) -> Stream:
        control = read_control(self._layout)
        left_out: list[tuple[int, str, str]] = []
        if resumes:
            saved = {number: Resume.unpack(data) for number, data in resumes.items()}
            places = resumed(self.name, control, saved)
        else:
            leave_out = self.config.open_at_start == "leave_out"
            places, left_out = fresh(self.name, self._layout, control, leave_out=leave_out)
        space = SpillSpace(self.config.spill_directory)
        assembler = Assembler(
            self.name,
            FrameMaker(self.name, lambda: read_control(self._layout).tables, encoders),
            space,
            include_system=self.config.include_system,
            spill_bytes_max=self.config.spill_bytes_max,
        )
        return SimulatedRacStream(
            self.name,
            self._layout,
            control,
            places,
            marks,
            assembler,
            space,
            read_bytes=self.config.read_bytes,
            left_out=left_out,
            announce=places.keys() != resumes.keys(),
        )

    def tables_to_copy(self) -> list[TableSchema]:
        """None: start capture before the cluster's first transaction, and all rows come from the log."""
        return []

    def filled_columns(self, table: str) -> set[str]:
        return set()

    def begin_view(self, tables: Sequence[str]) -> TableView:
        raise self._no_copy(", ".join(tables))

    def read_chunk(self, chunk: Chunk, avro: str, rules: ColumnRules) -> Iterator[Any]:
        raise self._no_copy(chunk.table)

    def _no_copy(self, table: str) -> SourceError:
        return SourceError(
            f"simulated_rac has no copy of {table}: the simulation keeps its log and no rows",
            source=self.name,
            hint="start capture before the cluster's first transaction, and all rows come from the log",
        )
