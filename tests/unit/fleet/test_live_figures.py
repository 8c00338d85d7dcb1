"""What the live table shows of two sources: threads, who holds the watermark, how far copies are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lowwater_devkit.demo.bank import bank_config
from lowwater_fleet.cli.live import Watch
from lowwater_fleet.runner.runner import Runner

THREAD = {"mark": "5.*", "published": "5.1", "state": "open"}
IDLE: dict[str, int] = {"tables": 0, "copied": 0, "waiting": 0}
MERGER: dict[str, Any] = {
    "next_gsn": 11,
    "holder": {"source": "rac", "thread": 2, "seconds": 9.0},
    "sources": {
        "rac": {"threads": {"2": {"mark": "4.*"}}, "waiting": 3},
        "postgres": {"threads": {"1": {"mark": "5.*"}}, "waiting": 4},
    },
}


class _Runner(Runner):
    def __init__(self, statuses: dict[str, dict[str, Any]]) -> None:
        self.statuses = statuses

    def status(self, name: str) -> dict[str, Any]:
        return self.statuses.get(name, {})


def _watch() -> tuple[_Runner, Watch]:
    tables = [{"chunks_done": 2, "chunks": 5, "rows": 40_000}, {"chunks_done": 0, "chunks": 1, "rows": 0}]
    runner = _Runner(
        {
            "extractor-rac": {"threads": {"1": THREAD, "2": THREAD}, "copies": IDLE},
            "extractor-postgres": {"threads": {"1": THREAD}, "copies": {"tables": 3, "copied": 1, "waiting": 1}},
            "merger-bank": MERGER,
            "spark-bank": {"gsn": 10, "lake": "here", "copies": {"state": "copying", "tables": tables}},
        }
    )
    return runner, Watch(runner, ["rac", "postgres"], "bank")


def test_threads_of_two_sources_and_the_holder_by_name() -> None:
    figures = _watch()[1].look()
    assert list(figures.threads) == [("rac", "1"), ("rac", "2"), ("postgres", "1")]
    assert figures.marks[("postgres", "1")] == {"mark": "5.*"}
    assert figures.holder == ("rac", "2")
    assert figures.held == "rac's thread 2 holds the watermark for 9 s"
    assert figures.waiting == 7


def test_how_far_the_copies_are() -> None:
    runner, watch = _watch()
    figures = watch.look()
    assert figures.copied("postgres") == "1 of 4 tables copied"
    assert figures.copied("rac") == ""
    assert figures.copying == "copies: 2 left, 2 of their 6 chunks done, 40,000 rows"
    # while its extractor is down, what it said last stays
    del runner.statuses["extractor-postgres"]
    assert watch.look().copied("postgres") == "1 of 4 tables copied"


def test_an_error_of_the_copies_is_shown() -> None:
    runner, watch = _watch()
    runner.statuses["spark-bank"]["copies"] = {"state": "failed", "error": {"what": "no login", "hint": "mend it"}}
    assert watch.look().error == "no login → mend it"


def test_a_postgresql_beside_the_cluster_is_in_the_same_group(tmp_path: Path) -> None:
    alone = yaml.safe_load(bank_config(tmp_path, "broker:1").read_text())
    assert alone["groups"]["bank"]["sources"] == ["rac"] == list(alone["sources"])
    both = yaml.safe_load(bank_config(tmp_path, "broker:1", beside={"postgres": {"port": 5}}).read_text())
    assert both["groups"]["bank"]["sources"] == ["rac", "postgres"] == list(both["sources"])
    assert both["sources"]["postgres"]["kind"] == "postgres"
    assert both["sources"]["postgres"]["config"] == {"port": 5}
