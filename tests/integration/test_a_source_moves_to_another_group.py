"""A group's merger deletes what it has released: another group can take the source over once it was reset."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import NewFleet
from tests.support.harness import Workload, wait_until

from lowwater.kafka import topics
from lowwater.kafka.admin import Admin


def test_source_is_released_by_its_second_group_from_its_reset_on(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work = Workload(fleet.cluster(), transactions=40)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run(20)
    fleet.wait_for_all()
    topic, admin = topics.changes(fleet.sources[0]), Admin(fleet.settings.kafka)
    partitions = fleet.settings.source(fleet.sources[0]).partitions
    wait_until("records to be deleted", lambda: any(admin.first_offsets(topic, partitions).values()))
    merger.stop()
    other = fleet.second_group()
    second = other.merger()
    failed = other.wait_for_status(second, "an error", lambda status: status.get("error"))
    assert failed["error"]["error"] == "DataGoneError"
    assert "source reset" in failed["error"]["hint"]
    extractor.stop()
    for command in (["source", "reset", fleet.sources[0], "--yes"], ["group", "retry", other.group]):
        arguments = [*command, "--reason", "a test", "--config", str(other.config)]
        subprocess.run([sys.executable, "-m", "lowwater_fleet.cli.main", *arguments], check=True, timeout=60)
    again = fleet.extractor()
    for service in (again, second):
        fleet.wait_for_status(service, "running", lambda status: status["state"] == "running")
    work.run()
    wait_until("transactions of the second group", lambda: len(other.ordered()) >= 20)
    ordered = other.ordered()
    assert [transaction.gsn for transaction in ordered] == list(range(1, len(ordered) + 1))
    assert not [transaction.torn for transaction in ordered if transaction.torn]
    assert len({t.commit.generation for t in ordered if t.commit}) == 1
