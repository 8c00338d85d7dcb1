"""The config file with the control topic on top: what runs, in which group, without any secret shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lowwater.control.commands import GROUP, SOURCE, Change, configure, exclude, remove, restart, want
from lowwater.control.desired_state import SourceSpec, check_secrets, services_of, to_json, wanted_fleet
from lowwater.control.fold import ControlFold, next_command
from lowwater.errors import ConfigError
from lowwater.records.types import Control, Exclusion, Status, Wanted
from lowwater.runtime.config import Settings
from lowwater.runtime.secrets import redacted
from lowwater.status.fleet_status import describe_fleet
from lowwater.status.reporter import Statuses

RAW: dict[str, Any] = {
    "sources": {"rac": {"kind": "simulated_rac", "config": {"directory": "x"}}, "pg": {"kind": "postgres"}},
    "groups": {"bank": {"sources": ["rac", "pg"], "lake": {"uri": "/lake"}}},
}
SPEC = SourceSpec(kind="mysql", group="bank", config={"host": "db"})


def _said(*words: tuple[str, str, Change]) -> ControlFold:
    fold = ControlFold()
    for kind, name, change in words:
        assert fold.apply(next_command(fold.get(kind, name), kind, name, change))
    return fold


def test_a_source_that_is_added_joins_its_group() -> None:
    fleet = wanted_fleet(Settings(**RAW), _said((SOURCE, "orders", configure(to_json(SPEC), "added"))))
    assert set(fleet.sources) == {"orders", "pg", "rac"}
    assert fleet.settings.groups["bank"].sources == ["orders", "pg", "rac"]
    assert fleet.settings.sources["orders"].config == {"host": "db"}


def test_one_that_is_removed_leaves_it_also_if_the_file_has_it() -> None:
    fold = _said((SOURCE, "pg", remove("no more")))
    fleet = wanted_fleet(Settings(**RAW), fold)
    assert fleet.settings.groups["bank"].sources == ["rac"]
    assert set(services_of(fleet, fold)) == {("extractor", "rac"), ("merger", "bank"), ("spark", "bank")}
    again = _said((SOURCE, "pg", remove("no more")), (SOURCE, "pg", configure(to_json(SPEC), "back")))
    assert wanted_fleet(Settings(**RAW), again).sources["pg"].kind == "mysql"


def test_a_source_moves_to_another_group() -> None:
    moved = SPEC.model_copy(update={"group": "other"})
    words = [(GROUP, "other", configure("{}", "made")), (SOURCE, "rac", configure(to_json(moved), "moved"))]
    fleet = wanted_fleet(Settings(**RAW), _said(*words))
    assert fleet.settings.groups["bank"].sources == ["pg"]
    assert fleet.settings.groups["other"].sources == ["rac"]


def test_a_group_without_sources_is_there_and_nothing_runs_for_it() -> None:
    fold = _said((GROUP, "other", configure("{}", "made")))
    fleet = wanted_fleet(Settings(**RAW), fold)
    assert "other" in fleet.groups
    assert ("merger", "other") not in services_of(fleet, fold)


@pytest.mark.parametrize(("wanted", "is_up"), [("running", True), ("paused", True), ("stopped", False)])
def test_what_is_stopped_is_down_and_what_is_paused_is_up(wanted: str, is_up: bool) -> None:
    fold = _said((SOURCE, "rac", want(Wanted(wanted), "")))
    assert services_of(wanted_fleet(Settings(**RAW), fold), fold)[("extractor", "rac")] is is_up


def test_a_config_of_another_version_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match="source rac in the control topic is not valid in this version: knid"):
        wanted_fleet(Settings(**RAW), _said((SOURCE, "rac", configure('{"kind":"x","knid":1}', ""))))


def test_values_of_secrets_are_refused_and_never_shown() -> None:
    config = {"password": "hunter2", "options": {"sslpassword": "${env:X}"}, "uri": "mongodb://me:hunter2@db/x"}
    assert [field for field, _ in check_secrets(config)] == ["password", "uri"]
    raw = {**RAW, "sources": {**RAW["sources"], "pg": {"kind": "postgres", "config": config}}}
    shown = wanted_fleet(Settings(**raw), ControlFold()).shown("pg").config
    assert shown == {"password": "***", "options": {"sslpassword": "${env:X}"}, "uri": "mongodb://me:***@db/x"}
    assert redacted("uri", "mongodb://me:${env:P}@db/x") == "mongodb://me:${env:P}@db/x"


def test_a_restart_is_another_token_and_a_word_keeps_the_rest() -> None:
    fold = _said((SOURCE, "rac", restart("one", "")), (SOURCE, "rac", want(Wanted.PAUSED, "")))
    assert fold.get(SOURCE, "rac").control.restart == "one"


# -- the overview -----------------------------------------------------------------------------------------

NOW = 1_000_000_000


def _overview(*statuses: Status, fold: ControlFold | None = None) -> dict[str, Any]:
    board = Statuses()
    for status in statuses:
        board.apply(status)
    known = fold or ControlFold()
    return describe_fleet(wanted_fleet(Settings(**RAW), known), known, board, NOW)


def test_a_service_that_is_silent_is_unreachable_unless_it_was_stopped() -> None:
    fresh = Status("extractor", "rac", "running", NOW - 1_000_000, '{"transactions": 5}')
    old = replace(fresh, name="pg", at_us=NOW - 60_000_000)
    sources = _overview(fresh, old)["sources"]
    assert {name: s["state"] for name, s in sources.items()} == {"rac": "running", "pg": "unreachable"}
    stopped = _overview(fold=_said((SOURCE, "rac", want(Wanted.STOPPED, ""))))["sources"]
    assert stopped["rac"]["state"] == "stopped"


def test_the_holder_is_shown_at_its_thread_and_an_exclusion_too() -> None:
    holder = '{"next_gsn": 8, "holder": {"source": "rac", "thread": 2, "seconds": 9, "waiting": 3, "why": "silent"}}'
    threads = '{"threads": {"1": {"mark": "5.*"}, "2": {"mark": "3.*"}}}'
    statuses = [Status("merger", "bank", "running", NOW, holder), Status("extractor", "rac", "running", NOW, threads)]
    fold = _said((GROUP, "bank", exclude(Exclusion("rac", 1, "gone"))))
    overview = _overview(*statuses, fold=fold)
    first, second = overview["sources"]["rac"]["threads"]
    assert (first["is_excluded"], first["holds_seconds"]) == (True, None)
    assert (second["is_excluded"], second["holds_seconds"]) == (False, 9)
    assert overview["groups"]["bank"]["gsn"] == 7


def test_rates_are_taken_over_seconds_and_begin_anew_with_a_process() -> None:
    board = Statuses()
    for second, count in enumerate((100, 200, 300, 10, 20)):
        board.apply(Status("extractor", "rac", "running", second * 1_000_000, f'{{"transactions": {count}}}'))
        if second == 2:
            assert _rate(board) == pytest.approx(100)
    assert _rate(board) == pytest.approx(10)


def _rate(board: Statuses) -> float:
    reported = board.get("extractor", "rac")
    assert reported is not None
    return reported.per_second


def test_a_later_word_is_not_undone_by_one_that_comes_late() -> None:
    board = Statuses()
    board.apply(Status("merger", "bank", "running", 2, "{}"))
    board.apply(Status("merger", "bank", "starting", 1, "{}"))
    reported = board.get("merger", "bank")
    assert reported is not None
    assert reported.state == "running"


def test_a_control_record_from_before_a_config_says_nothing_about_one() -> None:
    fold = ControlFold()
    fold.apply(Control(name="elsewhere", kind=SOURCE, changes_version=0, wanted=Wanted.PAUSED, config=""))
    assert "elsewhere" not in wanted_fleet(Settings(**RAW), fold).sources
