"""The conformance kit of `oracle`: redo files without a database, as the simulated cluster writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.conformance.simulated_rac import THREADS, SimulatedRacDatabase, SimulatedRacKit

from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_devkit.simulated_rac.view import SimulatedView
from lowwater_extractor.sources.oracle.dictionary import file as dictionary_file


class RedoFiles(SimulatedRacDatabase):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        dictionary_file.save(SimulatedView("files", Layout(directory)).dictionary(), directory / "dictionary.json")


class OracleKit(SimulatedRacKit):
    kind = "oracle"
    begins_now = False

    def create(self, directory: Path) -> RedoFiles:
        return RedoFiles(directory)

    def config(self, directory: Path) -> dict[str, Any]:
        return {
            "tables": ["BANK.*"],
            "threads": list(range(1, THREADS + 1)),
            "redo": {"online": [str(directory / "online")], "archive": [str(directory / "archive")]},
            "dictionary": str(directory / "dictionary.json"),
            "read_bytes": 3000,
            "spill_bytes_max": 500,
            "spill_directory": str(directory / "spill"),
        }

    def wrong_configs(self, directory: Path) -> dict[str, dict[str, Any]]:
        good = self.config(directory)
        return {
            "tables": {k: v for k, v in good.items() if k != "tables"},
            "threads": {**good, "threads": []},
            "capture": {**good, "capture": "by hand"},
            "colour": {**good, "colour": "blue"},
        }
