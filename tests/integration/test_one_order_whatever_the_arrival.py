"""P2 and P5 on the real broker: two sources, one order, and the same one however it was come by."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise

from confluent_kafka.admin import AdminClient
from tests.conftest import SMALL_RELEASES, NewFleet
from tests.support.harness import Fleet, Workload, wait_until

from lowwater.kafka import topics
from lowwater.kafka.consumer import AssignedConsumer
from lowwater.records.types import Position
from lowwater_fleet.runner.services import Service

KEEP_CHANGES = {**SMALL_RELEASES, "delete_seconds": 3600.0}


def _now_us() -> int:
    return time.time_ns() // 1000


def _two_sources(fleet: Fleet, transactions: int) -> list[Workload]:
    """One database whose commit times are the time of day, and one that believes it is 2023."""
    first, second = fleet.sources
    clusters = [fleet.cluster(first, now_us=_now_us), fleet.cluster(second, threads=3)]
    for source in fleet.sources:
        fleet.extractor(source)
    for source in fleet.sources:
        fleet.wait_for_capture(source)
    return [
        Workload(cluster, transactions=transactions, transfers=2, xa=0.1, seed=seed)
        for seed, cluster in enumerate(clusters, 1)
    ]


def _in_pieces(works: list[Workload], seed: int = 7) -> Iterator[int]:
    """Some of this, some of that, until all is done; yields now and then."""
    rng = random.Random(seed)
    while works:
        work = rng.choice(works)
        if not work.step(rng.randrange(1, 9)):
            works.remove(work)
        for other in works:
            other.cluster.heartbeat()
        yield len(works)


def test_two_sources_have_one_order_which_another_group_finds_again(new_fleet: NewFleet) -> None:
    fleet = new_fleet(sources=2, group=KEEP_CHANGES)
    merger = fleet.merger()
    works = _two_sources(fleet, 80)
    for number, _ in enumerate(_in_pieces(works)):
        if number in (5, 15):
            merger.kill()
            merger = fleet.merger()
        time.sleep(0.08)
    fleet.wait_for_all()
    fleet.assert_good()
    order = fleet.order()
    sources = [source for _, source, _, _ in order]
    assert sum(a != b for a, b in pairwise(sources)) > 4, "they do interleave"
    merger.stop()

    again = fleet.second_group()
    killed = again.merger()
    again.wait_for_status(killed, "its first releases", lambda s: s.get("next_gsn", 0) > 10)
    killed.kill()
    again.merger()
    again.wait_for_all()
    again.assert_good()
    assert again.order() == order, "the same changes give the same order, whatever the arrival"


def test_a_source_that_is_down_holds_the_other_one(new_fleet: NewFleet) -> None:
    fleet = new_fleet(sources=2)
    first, second = fleet.sources
    merger = fleet.merger()
    works = _two_sources(fleet, 40)
    for work in works:
        work.run(20)
    fleet.wait_for_all()
    down = next(s for s in fleet._started if s.name == f"extractor-{second}")
    down.kill()
    # commit times are in whole seconds: what comes now is later than the last mark of the one that is down
    time.sleep(1.1)
    works[0].run()
    waiting = sum(map(len, fleet.histories().values())) - len(fleet.ordered())
    shown = fleet.wait_for_status(merger, "all that waits", lambda s: (s["holder"] or {}).get("waiting") == waiting)
    assert shown["holder"]["source"] == second
    assert shown["sources"][first]["waiting"] == waiting > 5
    fleet.extractor(second)
    works[1].run()
    fleet.wait_for_all()
    fleet.assert_good()


# -- restarts --------------------------------------------------------------------------------------------


def _running(fleet: Fleet, transactions: int = 200) -> tuple[Workload, Service]:
    work = Workload(fleet.cluster(), transactions=transactions, transfers=3)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    return work, merger


def test_a_merger_whose_consumer_group_is_gone_goes_on_from_its_progress(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work, merger = _running(fleet)
    work.run(120)
    fleet.wait_for_all()
    merger.kill()
    group = f"lowwater.{fleet.group}"
    admin = AdminClient({"bootstrap.servers": fleet.settings.kafka.bootstrap_servers})
    for future in admin.delete_consumer_groups([group]).values():
        future.result()
    work.run()
    fleet.merger()
    fleet.wait_for_all()
    fleet.assert_good()


def test_old_changes_are_deleted_only_behind_progress(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    work, merger = _running(fleet)
    source = fleet.sources[0]
    wait_until("the first deletion", lambda: work.step(1) and any(low for low, _ in fleet.offsets().values()))
    looks = 0
    while work.step(10):
        # in this order: progress only grows, so what was gone before must be behind what it says now
        gone = {p: low for p, (low, _) in fleet.offsets().items()}
        saved = {p.partition: p.offset for s in fleet.progress().sources for p in s.partitions}
        assert all(low <= saved[p] for p, low in gone.items()), f"deleted {gone}, progress is at {saved}"
        looks += 1
        if looks == 5:
            merger.kill()
            merger = fleet.merger()
    assert looks > 5
    fleet.wait_for_all()
    fleet.assert_good()

    def all_deleted() -> bool:
        return all(low > 0 for low, _ in fleet.offsets(source).values())

    wait_until(f"deletion in every partition of {topics.changes(source)}", all_deleted)


def _visible_position(fleet: Fleet) -> Position:
    """The last one that is committed; one that a dead extractor has left open is not waited for."""
    place = (topics.positions(fleet.sources[0]), 0)
    reader = AssignedConsumer(fleet.settings.kafka, "test", {place: 0})
    try:
        messages = wait_until("a position", lambda: reader.consume(10_000, 0.3))
    finally:
        reader.close()
    return fleet.codec.decode(messages[-1].value() or b"", Position)


def test_a_large_transaction_survives_an_extractor_that_is_killed_in_its_middle(new_fleet: NewFleet) -> None:
    """360 changes in batches of 50, and three kills at moments that a seed picks."""
    fleet = new_fleet()
    rng = random.Random(11)
    work = Workload(fleet.cluster(), transactions=40, transfers=120, sessions=3)
    fleet.merger()
    extractor = fleet.extractor()
    fleet.wait_for_capture()
    extractor.kill()
    work.run()
    halves = []
    for epoch in range(1, 4):
        extractor = fleet.extractor()
        while _visible_position(fleet).epoch <= epoch:
            assert extractor.is_running, fleet.log_tails()
        time.sleep(rng.random() * 0.1)
        extractor.kill()
        halves.append(_visible_position(fleet).in_progress)
    fleet.extractor()
    fleet.wait_for_all()
    fleet.assert_good()
    assert any(halves), "no kill hit a transaction that was half published"
