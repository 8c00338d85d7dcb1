"""A thread that says nothing holds the watermark, by name, until it returns or an operator says a word."""

from __future__ import annotations

from typing import Any

from tests.conftest import NewFleet
from tests.support.harness import Fleet, Workload, get, metric, wait_until

from lowwater.records.types import Word
from lowwater_devkit.simulated_rac.cluster import Cluster
from lowwater_fleet.cli import operate as operate_cli

HOLDS = "lowwater_merger_holds_watermark"
STOPPED = "lowwater_merger_source_stopped"


def _account(number: int) -> tuple[int, int, int, int]:
    return number, 1, 100, 5


def _commit(cluster: Cluster, thread: int, number: int, *, flush: bool = True) -> str:
    transaction = cluster.begin(thread)
    cluster.insert(transaction, "BANK.ACCOUNTS", _account(number))
    cluster.commit(transaction, flush=flush)
    return transaction.txid


def _txids(fleet: Fleet) -> list[str]:
    return [txid for *_, txid in fleet.order()]


def _words(fleet: Fleet) -> list[Word]:
    return [w for w in fleet.progress().words if w.word != "join"]


def test_the_holder_is_named_until_it_is_excluded_and_holds_again_once_it_is_included(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    cluster = fleet.cluster()
    work = Workload(cluster, transactions=120, sessions=4)
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    work.run(40)
    fleet.wait_for_all()
    cluster.stop(2)
    work.run(80)
    waiting = len(fleet.histories()[source]) - len(fleet.ordered())
    assert waiting > 20
    wanted = {"source": source, "thread": 2, "waiting": waiting}
    shown = fleet.wait_for_status(
        merger, "the holder and all that waits", lambda s: wanted.items() <= (s["holder"] or {}).items()
    )
    assert "the last mark of thread 2 (open) is" in shown["holder"]["why"]
    wait_until("the metric", lambda: metric(merger, HOLDS, source=source, thread="2") == 1.0)
    assert metric(merger, HOLDS, source=source, thread="1") == 0.0
    assert metric(merger, "lowwater_merger_waiting_transactions", source=source) == waiting

    operate_cli.exclude(source, 2, "its node is gone", fleet.config)
    fleet.wait_for_all()
    shown = fleet.wait_for_status(merger, "nobody holds", lambda s: s["holder"] is None)
    assert shown["sources"][source]["threads"]["2"]["excluded"]
    excluded_at = _words(fleet)[0].gsn

    operate_cli.include(source, 2, "it will be back", fleet.config)
    fleet.wait_for_status(merger, "it counts again", lambda s: not s["sources"][source]["threads"]["2"]["excluded"])
    work.run(100)
    fleet.wait_for_status(merger, "it holds again", lambda s: s["holder"] and s["holder"]["thread"] == 2)
    cluster.restart(2)
    work.run()
    fleet.wait_for_all()
    fleet.assert_good()
    assert [(w.word, w.thread, w.reason) for w in _words(fleet)] == [
        ("exclude", 2, "its node is gone"),
        ("include", 2, "it will be back"),
    ]
    assert excluded_at == _words(fleet)[0].gsn < _words(fleet)[1].gsn


def _excluded_too_early(fleet: Fleet, cluster: Cluster) -> tuple[str, str]:
    """Thread 2 has committed, but its log buffer is not written yet; it is excluded, and the others go on."""
    source = fleet.sources[0]
    for thread in (1, 2):
        _commit(cluster, thread, thread)
    cluster.heartbeat()
    fleet.wait_for_all()
    late = _commit(cluster, 2, 10, flush=False)
    early = _commit(cluster, 1, 11)
    cluster.heartbeat(1)
    operate_cli.exclude(source, 2, "it is slow", fleet.config)
    wait_until("what waited for thread 2", lambda: early in _txids(fleet))
    return early, late


def test_what_an_excluded_thread_commits_too_late_stops_its_source_until_it_is_skipped(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    cluster = fleet.cluster()
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    early, late = _excluded_too_early(fleet, cluster)
    cluster.heartbeat(2)
    shown = fleet.wait_for_status(merger, "the late one", lambda s: s["sources"][source]["error"])
    error: dict[str, Any] = shown["sources"][source]["error"]
    assert (error["error"], error["thread"]) == ("LateError", 2)
    assert late in error["what"]
    assert "skip" in error["hint"]
    assert shown["state"] == "stopped"
    assert shown["holder"]["source"] == source
    assert "stopped" in shown["holder"]["why"]
    assert metric(merger, STOPPED, source=source) == 1.0
    assert get(merger, "/health/ready") == (503, f"stopped: {source}\n")

    after = [_commit(cluster, thread, 20 + thread) for thread in (1, 2)]
    cluster.heartbeat()
    operate_cli.skip(source, 2, late, "known to be harmless", fleet.config)
    fleet.wait_for_all()
    wait_until("it is ready again", lambda: get(merger, "/health/ready")[0] == 200)
    ordered = {t.gsn: t for t in fleet.ordered()}
    txids = _txids(fleet)
    gsn = txids.index(late) + 1
    skipped = ordered[gsn].skipped
    assert skipped is not None
    assert (skipped.source, skipped.thread, skipped.txid, skipped.reason) == (source, 2, late, "known to be harmless")
    assert txids.index(early) < txids.index(late) < min(map(txids.index, after))
    said = [(w.gsn, w.word, w.thread, w.txid) for w in _words(fleet)]
    assert said == [(said[0][0], "exclude", 2, ""), (gsn, "skip", 2, late)]
    verdict = fleet.verdict()
    assert verdict.is_good, verdict.details
    assert verdict.skipped == 1


def test_a_merger_that_is_killed_remembers_exclusions_and_skips(new_fleet: NewFleet) -> None:
    fleet = new_fleet()
    source = fleet.sources[0]
    cluster = fleet.cluster()
    fleet.extractor()
    merger = fleet.merger()
    fleet.wait_for_capture()
    early, late = _excluded_too_early(fleet, cluster)
    merger.kill()
    cluster.heartbeat(2)
    merger = fleet.merger()
    shown = fleet.wait_for_status(merger, "the late one", lambda s: s.get("sources", {}).get(source, {}).get("error"))
    assert shown["sources"][source]["error"]["error"] == "LateError"
    operate_cli.skip(source, 2, late, "known", fleet.config)
    wait_until("the skip", lambda: late in _txids(fleet))
    order = fleet.order()
    assert [txid for *_, txid in order].count(early) == 1
    merger.kill()
    _commit(cluster, 2, 30)
    _commit(cluster, 1, 31)
    cluster.heartbeat()
    fleet.merger()
    fleet.wait_for_all()
    assert fleet.order()[: len(order)] == order
    assert [w.word for w in _words(fleet)] == ["exclude", "skip"], "said once each"
    verdict = fleet.verdict()
    assert verdict.is_good, verdict.details
