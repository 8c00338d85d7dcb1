"""What the simulated database says of itself: its control file stands for V$DATABASE, V$THREAD and GV$TRANSACTION."""

from __future__ import annotations

import json
from typing import Any

from lowwater.errors import LogCorruptError, SourceError
from lowwater_extractor.source import ThreadState
from lowwater_extractor.sources.oracle import dictionary_file
from lowwater_extractor.sources.oracle.dictionary import Dictionary
from lowwater_extractor.sources.oracle.discovery import Look, OpenTransaction, Start, Thread
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.files import LogDirectories, LogFiles
from lowwater_extractor.sources.simulated_rac.log import Layout


class SimulatedView:
    """`RedoView` over a cluster's directory."""

    def __init__(self, source: str, layout: Layout) -> None:
        self._source = source
        self._layout = layout
        control = self.control()
        self.container = int(control["container"])
        self.identity = Identity(control["database"], control["resetlogs"])
        self.files: LogFiles = LogDirectories(
            source, self.identity, [layout.root / "online"], [layout.root / "archive"]
        )

    def control(self) -> dict[str, Any]:
        path = self._layout.control
        try:
            found: dict[str, Any] = json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise SourceError(
                f"no simulated cluster in {self._layout.root}: {path.name} is missing",
                source=self._source,
                hint="start one: python -m lowwater_extractor.sources.simulated_rac --directory …",
            ) from error
        except ValueError as error:
            raise LogCorruptError(f"{path} is not JSON: {error}", source=self._source) from error
        return found

    def incarnation(self) -> str:
        control = self.control()
        return f"{control['database']}.{control['resetlogs']}"

    def dictionary(self) -> Dictionary:
        return dictionary_file.from_json(self._source, self.control()["dictionary"], str(self._layout.control))

    def look(self) -> Look:
        return _look(self.control())

    def start(self) -> Start:
        control = self.control()
        since = int(control["current_scn"])
        opened = []
        for entry in control["open"]:
            usn, slot, wrap = entry["xid"] >> 48 & 0xFFFF, entry["xid"] >> 32 & 0xFFFF, entry["xid"] & 0xFFFF_FFFF
            opened.append(OpenTransaction(entry["thread"], usn, slot, wrap, entry["scn"], self.container))
        return Start(min([since, *(each.start_scn for each in opened)]), since, opened)


def _look(control: dict[str, Any]) -> Look:
    threads = {}
    for number, info in control["threads"].items():
        state = ThreadState(info["state"])
        threads[int(number)] = Thread(int(number), state, True, info["sequence"], info["enabled_scn"], 0, "")
    return Look(int(control["current_scn"]), threads)
