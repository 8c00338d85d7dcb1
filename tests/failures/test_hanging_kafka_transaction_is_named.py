"""P7: a frozen extractor leaves its Kafka transaction open; the merger's status names what that hides."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from lowwater.kafka import topics
from lowwater.kafka.admin import Admin
from tests.conftest import NewFleet
from tests.support.harness import Workload, wait_until


def test_open_transaction_is_named(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    work = Workload(fleet.cluster(), transactions=0, transfers=3)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    assert extractor.process is not None
    pid = extractor.process.pid
    places = [(topics.changes(source), p) for p in range(fleet.settings.source(source).partitions)]
    admin = Admin(fleet.settings.kafka)

    def is_frozen_inside() -> bool:
        """Freeze it again and again, until that was in the middle of a Kafka transaction."""
        work.step(3)
        os.kill(pid, signal.SIGSTOP)
        # asked twice: the request that ends the transaction may be on its way
        for _ in range(2):
            ends = wait_until("the ends", admin.ask_ends(places).take)
            if all(stable == high for stable, high in ends.values()):
                break
            time.sleep(0.5)
        else:
            return True
        os.kill(pid, signal.SIGCONT)
        return False

    wait_until("a freeze inside a Kafka transaction", is_frozen_inside)

    def names_it() -> bool:
        found: dict[str, Any] = (merger.status() or {}).get("sources", {}).get(source, {})
        return topics.changes(source) in found.get("hidden_by_open_transaction", "")

    wait_until("the status to name the open transaction", names_it)
    os.kill(pid, signal.SIGCONT)
    work.cluster.heartbeat()
    fleet.wait_for_all()
    fleet.assert_good()
