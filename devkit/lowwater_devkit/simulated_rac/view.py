"""`RedoView` of the simulated database: its control file replaces V$DATABASE, V$THREAD and GV$TRANSACTION."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lowwater.errors import LogCorruptError, SourceError
from lowwater_devkit.simulated_rac.layout import Layout
from lowwater_extractor.api import ThreadState
from lowwater_extractor.sources.oracle.capture import captured_objects
from lowwater_extractor.sources.oracle.dictionary import file as dictionary_file
from lowwater_extractor.sources.oracle.dictionary.dictionary import Dictionary
from lowwater_extractor.sources.oracle.redo.events import Captured
from lowwater_extractor.sources.oracle.redo.file_header import Identity
from lowwater_extractor.sources.oracle.redo.files import LogDirectories, LogFiles
from lowwater_extractor.sources.oracle.scn import Scn
from lowwater_extractor.sources.oracle.thread_snapshot import OpenTransaction, Start, Thread, ThreadSnapshot


class SimulatedView:
    """`RedoView` over a cluster's directory."""

    def __init__(self, source: str, layout: Layout) -> None:
        self._source = source
        self._layout = layout
        control = self._control()
        self.identity = Identity(control["database"], control["resetlogs"])
        self.files: LogFiles = LogDirectories(
            source, self.identity, [layout.root / "online"], [layout.root / "archive"]
        )

    def _control(self) -> Any:
        return self._read(self._layout.control)

    def _read(self, path: Path) -> Any:
        try:
            return json.loads(path.read_bytes())
        except FileNotFoundError as error:
            raise SourceError(
                f"no simulated cluster in {self._layout.root}: {path.name} is missing",
                source=self._source,
                hint="start one: python -m lowwater_devkit.simulated_rac --directory …",
            ) from error
        except ValueError as error:
            raise LogCorruptError(f"{path} is not JSON: {error}", source=self._source) from error

    def incarnation(self) -> str:
        control = self._control()
        return f"{control['database']}.{control['resetlogs']}"

    def look(self) -> ThreadSnapshot:
        control = self._control()
        threads = {}
        for number, info in control["threads"].items():
            state = ThreadState(info["state"])
            threads[int(number)] = Thread(int(number), state, True, info["sequence"], info["enabled_scn"], Scn(0), "")
        return ThreadSnapshot(Scn(int(control["current_scn"])), threads)

    def start(self) -> Start:
        control = self._control()
        since, opened = Scn(int(control["current_scn"])), []
        for entry in control["open"]:
            usn, slot, wrap = entry["xid"] >> 48, entry["xid"] >> 32 & 0xFFFF, entry["xid"] & 0xFFFF_FFFF
            opened.append(OpenTransaction(entry["thread"], usn, slot, wrap, entry["scn"], control["container"]))
        return Start(min([since, *(each.start_scn for each in opened)]), since, opened)

    def dictionary(self) -> Dictionary:
        path = self._layout.dictionary
        return dictionary_file.from_json(self._source, self._read(path), str(path))


class SimulatedTables:
    """The dictionary; all its tables are captured. The file is replaced before a new table gets its first row."""

    def __init__(self, view: SimulatedView, layout: Layout) -> None:
        self._view = view
        self._path = layout.dictionary
        self.dictionary = Dictionary()
        self._stamp = (0, 0)
        self._captured = Captured.of(())

    def captured(self) -> Captured:
        found = self._path.stat()
        stamp = (found.st_ino, found.st_mtime_ns)
        if stamp != self._stamp:
            # the stamp is taken before the content is read: a file that is replaced in between is read again
            self._stamp = stamp
            for version in self._view.dictionary():
                self.dictionary.add(version)
            self._captured = captured_objects(self.dictionary)
        return self._captured
