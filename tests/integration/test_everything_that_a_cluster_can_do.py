"""End to end with the checker: what a cluster can go through, and a thread that stalls while another runs ahead."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.conftest import SMALL_BATCHES, NewFleet
from tests.support.harness import Workload, metric, wait_until

from lowwater_devkit.simulated_rac.script import Script


def test_xa_savepoints_rollbacks_switches_and_a_thread_that_is_added(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    cluster = fleet.cluster(log_bytes=8000, lwn_bytes=2000)
    work = Workload(cluster, transactions=200, transfers=4, rollbacks=0.15, savepoints=0.15, xa=0.2)
    fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run(60)
    cluster.switch(1)
    cluster.add_thread(3)
    work.run(120)
    cluster.close_thread(2)
    work.run(160)
    cluster.open_thread(2)
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    assert {thread for _, _, thread, _ in fleet.order()} == {1, 2, 3}
    assert all(instance.sequence > 3 for instance in cluster.instances.values()), "the logs were switched"


def test_a_log_that_was_overwritten_before_it_was_read_comes_from_the_archive(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    cluster = fleet.cluster(log_bytes=4000, lwn_bytes=1000, groups=2)
    work = Workload(cluster, transactions=150, transfers=5)
    extractor = fleet.extractor()
    fleet.merger()
    fleet.wait_for_capture()
    work.run(30)
    fleet.wait_for_all()
    before = {thread: instance.sequence for thread, instance in cluster.instances.items()}
    extractor.kill()
    work.run()
    assert all(cluster.instances[thread].sequence > sequence + 2 for thread, sequence in before.items())
    fleet.extractor()
    fleet.wait_for_all()
    fleet.assert_good()


@pytest.mark.parametrize("seed", [1, 4])
def test_a_script_of_everything_with_a_kill_of_each_service(new_fleet: NewFleet, seed: int) -> None:
    """Instances that close, stop without a word, return or are recovered by another; threads that are added."""
    fleet = new_fleet()
    cluster = fleet.cluster(log_bytes=6000, lwn_bytes=1000, groups=2)
    script = Script(cluster, seed)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    for number in range(900):
        script.step()
        if number % 30 == 0:
            time.sleep(0.05)
        if number == 300:
            extractor.kill()
            extractor = fleet.extractor()
        if number == 600:
            merger.kill()
            merger = fleet.merger()
    script.finish()
    fleet.wait_for_all()
    assert fleet.assert_good().transactions > 30


# -- the lead limit --------------------------------------------------------------------------------------


def test_a_thread_that_runs_far_ahead_is_held_until_the_silent_one_returns(new_fleet: NewFleet) -> None:
    fleet = new_fleet(source={**SMALL_BATCHES, "lead_bytes_max": 20_000})
    fleet.change_source(config={**fleet.settings.source(fleet.sources[0]).config, "read_bytes": 20_000})
    source = fleet.sources[0]
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=600, transfers=4, sessions=4)
    extractor, merger = fleet.extractor(), fleet.merger()
    fleet.wait_for_capture()
    work.run(40)
    fleet.wait_for_all()
    cluster.stop(2)
    work.run(500)

    def is_held(shown: dict[str, Any]) -> bool:
        return bool(shown["threads"]["1"]["held"])

    shown = fleet.wait_for_status(extractor, "the hold", is_held)
    assert not shown["threads"]["2"]["held"], "the one that all wait for is always read"
    assert shown["threads"]["1"]["lead_bytes"] > 20_000
    wait_until("the metric", lambda: metric(extractor, "lowwater_extractor_thread_held", thread="1") == 1.0)
    published = fleet.wait_for_status(extractor, "the hold", is_held)["threads"]["1"]["published"]
    time.sleep(1)
    assert fleet.wait_for_status(extractor, "the hold", is_held)["threads"]["1"]["published"] == published
    waiting = fleet.wait_for_status(merger, "the holder", lambda s: s["holder"])["sources"][source]["waiting"]
    assert waiting < 400, "the rest of the 460 was not even published"
    cluster.restart(2)
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
