"""A primary whose commits wait for a standby, and the standby, which can be made to answer late."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from contextlib import AbstractContextManager, suppress

from lowwater_devkit.servers.postgres import EmbeddedPostgres
from lowwater_fleet.runner.process_tree import children
from tests.support.beside import beside
from tests.support.harness import wait_until
from tests.support.postgres import Database, NewPostgres

NAME = "standby1"
#: a standby that does not answer stays connected
SETTINGS = {"fsync": "off", "wal_sender_timeout": "0", "wal_receiver_timeout": "0"}


class SlowStandby:
    """`hang` and `go_on`: while it hangs, transactions have their commit record in the log and run on for others."""

    def __init__(self, new_postgres: NewPostgres, version: int) -> None:
        primary = new_postgres("primary", version=version, settings=SETTINGS)
        primary.start()
        self.database = Database(primary, "bank")
        primary.stop()
        upstream = f"host=127.0.0.1 port={primary.port} user=postgres application_name={NAME}"
        self._standby: EmbeddedPostgres = new_postgres(
            "standby", version=version, settings={**SETTINGS, "primary_conninfo": upstream}
        )
        # a start makes its directories; then its data is that of the primary
        self._standby.start()
        self._standby.stop()
        shutil.rmtree(self._standby.data)
        subprocess.run(["cp", "-a", str(primary.data), str(self._standby.data)], check=True)
        (self._standby.data / "standby.signal").touch()
        waiting = {**SETTINGS, "synchronous_standby_names": NAME}
        self.primary: EmbeddedPostgres = new_postgres("primary", version=version, settings=waiting)
        self.primary.start()
        self._standby.start()
        in_step = "SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'"
        wait_until("the standby to be in step", lambda: self.database.execute(in_step))

    def hang(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        pid = self._standby.pid
        assert pid is not None
        for process in (pid, *children(pid)):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def hanging(self) -> int:
        """Transactions that have committed for the log, and for nobody else."""
        ((count,),) = self.database.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
        return int(count)

    def slow(self, seconds: float = 0.25) -> AbstractContextManager[None]:
        """It answers only now and then."""

        def work(is_over: threading.Event) -> None:
            while not is_over.wait(seconds / 4):
                self.hang()
                is_over.wait(seconds)
                self.go_on()

        return beside(work)
