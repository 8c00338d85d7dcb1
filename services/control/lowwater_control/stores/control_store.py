"""The state of this replica: the control and status topics, followed by a background thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from lowwater.control.commands import Change
from lowwater.control.desired_state import WantedFleet, wanted_fleet
from lowwater.control.fleet_reader import FleetReader
from lowwater.control.fold import ControlFold, ControlState, commit_command, conflict, next_command
from lowwater.errors import LowwaterError
from lowwater.records.codec import RecordCodec
from lowwater.runtime.config import Settings
from lowwater.runtime.failpoints import fail_point
from lowwater.runtime.times import now_us
from lowwater.status.fleet_status import describe_fleet
from lowwater.status.reporter import Statuses
from lowwater_control.problems import BusyError

POLL_SECONDS = 0.2
RETRY_SECONDS = 1.0
#: time limit from the write of a command until this replica has read it back
READ_BACK_SECONDS_MAX = 20.0

T = TypeVar("T")
_log = structlog.get_logger()


class ControlStore:
    def __init__(self, settings: Settings, codec: RecordCodec) -> None:
        self.settings = settings
        self.codec = codec
        self._changed = threading.Condition()
        #: one command at a time, so that each one is based on its predecessor
        self._writing = threading.Lock()
        self._reader: FleetReader | None = None
        self._error: LowwaterError | None = None
        self._fleet: WantedFleet | None = None
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="control-store", daemon=True)

    # -- following ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping = True
        self._thread.join(10)

    def _run(self) -> None:
        while not self._is_stopping:
            reader: FleetReader | None = None
            try:
                reader = FleetReader(self.settings.kafka, self.codec)
                self._follow(reader)
            except LowwaterError as error:
                _log.error("the control topic cannot be followed", **error.fields())
                with self._changed:
                    self._reader, self._error = None, error
                time.sleep(RETRY_SECONDS)
            finally:
                if reader is not None:
                    reader.close()

    def _follow(self, reader: FleetReader) -> None:
        with self._changed:
            self._reader, self._error = reader, None
            self._fleet = wanted_fleet(self.settings, reader.fold)
            self._changed.notify_all()
        while not self._is_stopping:
            # the consumer waits without the lock; only the records read are applied under it
            reader.wait(POLL_SECONDS)
            with self._changed:
                if reader.take():
                    self._fleet = wanted_fleet(self.settings, reader.fold)
                    self._changed.notify_all()

    # -- reading -----------------------------------------------------------------------------------------

    def look(self, at: Callable[[WantedFleet, ControlFold, Statuses], T]) -> T:
        """The result of `at` on a consistent state. Raises BusyError while Kafka does not answer."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._reader is not None or self._error is not None, 20):
                raise BusyError("Kafka has not answered yet", hint="retry in a moment")
            if self._reader is None or self._fleet is None:
                raise self._error or BusyError("Kafka does not answer")
            return at(self._fleet, self._reader.fold, self._reader.statuses)

    def fleet(self) -> WantedFleet:
        return self.look(lambda fleet, _fold, _board: fleet)

    def state(self, kind: str, name: str) -> ControlState:
        return self.look(lambda _fleet, fold, _board: fold.get(kind, name))

    def overview(self) -> dict[str, Any]:
        return self.look(lambda fleet, fold, statuses: describe_fleet(fleet, fold, statuses, now_us()))

    # -- writing -----------------------------------------------------------------------------------------

    def commit(
        self, kind: str, name: str, change: Change, check: Callable[[WantedFleet, ControlState], None] | None = None
    ) -> ControlState:
        """Write a command and wait until it is read back.

        On return it is durable, and visible to all requests to this replica. Raises ControlConflictError if another
        command for the same object was written first, and BusyError if it was not read back in time.
        """
        with self._writing:
            last = self.state(kind, name)
            if check is not None:
                check(self.fleet(), last)
            command = next_command(last, kind, name, change)
            fail_point("control.before_write")
            offset = commit_command(self.settings.kafka, self.codec.key(name), self.codec.encode(command))
            fail_point("control.written")
            if not self._outcome(offset):
                raise conflict(kind, name)
            return ControlState(last.version + 1, command)

    def _outcome(self, offset: int) -> bool:
        with self._changed:
            if not self._changed.wait_for(lambda: self._known(offset) is not None, READ_BACK_SECONDS_MAX):
                raise BusyError(
                    "the command was written, but not read back in time", hint="check its effect before you repeat it"
                )
            return bool(self._known(offset))

    def _known(self, offset: int) -> bool | None:
        return None if self._reader is None else self._reader.outcomes.get(offset)
